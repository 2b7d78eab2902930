"""Leads the webhooks of a controller to this machine, where it runs.

    manifests, Service, port  --led_here-->  the same with this port, the Service as ExternalName

The API server connects to an ExternalName as to any host, and still checks the certificate for the
Service's own name. So a controller that makes its certificates itself can go on doing so.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kwok_operator.formats.manifests import CRD, Manifest
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at

MUTATING: Final = "MutatingWebhookConfiguration"
VALIDATING: Final = "ValidatingWebhookConfiguration"
HOST: Final = "localhost"

Service = tuple[str, str]
"""Namespace and name of a Service."""


def clients_of(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yields each `clientConfig.service` of a webhook configuration, or of a CRD's conversion."""
    kind = manifest.get("kind")
    clients: list[Any] = []
    if kind in (MUTATING, VALIDATING):
        clients = [as_map(each).get("clientConfig") for each in as_list(manifest.get("webhooks"))]
    elif kind == CRD:
        clients = [value_at(manifest, "spec", "conversion", "webhook", "clientConfig")]
    for client in clients:
        service = as_map(client).get("service")
        if isinstance(service, dict):
            yield service


def service_in(client: dict[str, Any]) -> Service:
    return text_at(client, "namespace"), text_at(client, "name")


def led_here(manifests: Sequence[Manifest], service: Service, *, port: int) -> list[Manifest]:
    """Returns the manifests with all webhooks of a Service at a port of this machine, and the
    Service that leads there.
    """
    led = copy.deepcopy([*manifests])
    for client in (client for each in led for client in clients_of(each)):
        if service_in(client) == service:
            client["port"] = port
    namespace, name = service
    here = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": HOST, "ports": [{"port": port}]},
    }
    return [*led, here]
