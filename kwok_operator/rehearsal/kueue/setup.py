"""What of Kueue's manifests is installed, and the configuration of a manager on this machine.

    manifests of a release, Configuration of the user, ports  --set_up-->  KueueSetup

The manager runs outside the cluster, with the rights of the rehearsal. So its Deployment, accounts
and roles are left out, and its visibility API: that server needs a folder in the root of the file
system. Calls of Kueue's webhooks are led to this machine: their Service becomes an ExternalName.
The API server connects to it as to any host, and still checks the certificate for the Service's own
name. So Kueue makes its certificates itself, as in a cluster: it writes them into a Secret, and
reads them from files. In a cluster a kubelet makes these files from the Secret; here the rehearsal
does. (Without `internalCertManagement` Kueue takes the certificate of its metrics from a fixed path
in /etc.)
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.errors import KwokOperatorError, ManifestError
from kwok_operator.formats.manifests import CRD, Manifest, group_of
from kwok_operator.formats.untyped import as_list, as_map, as_texts, text_at, value_at
from kwok_operator.formats.words import names_in_words, shown
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.rehearsal.crdschemas import fields_of, schemas_of

GROUP: Final = "kueue.x-k8s.io"
QUEUE_LABEL: Final = f"{GROUP}/queue-name"
REMEDY: Final = "name the manifests of a release of Kueue, as they are installed"
_WEBHOOKS: Final = {
    f"{verb.title()}WebhookConfiguration": verb for verb in ("mutating", "validating")
}
_INSTALLED: Final = frozenset(_WEBHOOKS) | {
    f"{verb}AdmissionPolicy{binding}"
    for verb in ("Validating", "Mutating")
    for binding in ("", "Binding")
}
_CONFIGURATION: Final = "Configuration"
_CONFIG_GROUP: Final = f"config.{GROUP}"
_SUFFIX: Final = "-webhook-service"
_SECRET: Final = "kueue-webhook-server-cert"
_JOBS: Final = "batch/job"
_TAG: Final = re.compile(rb'json:"([A-Za-z0-9]+)')
"""How a Go program has the name of a field in it."""
_MOST_NAMES: Final = 3

Service = tuple[str, str]
"""Namespace and name of a Service, or of a Secret."""


class KueueSetupError(KwokOperatorError):
    """Kueue can't be started from these files. The text follows the name of the file."""


@dataclass(frozen=True, slots=True)
class KueueSetup:
    crds: Sequence[Manifest]
    objects: Sequence[Manifest]
    """What is installed besides, in the order of creation."""
    configuration: Manifest
    """Kueue's Configuration."""
    secret: Service
    """The Secret with the certificate of the webhooks."""

    @property
    def suspends_jobs(self) -> bool:
        """Whether every new Job with a queue is suspended, in any namespace but Kueue's own."""
        frameworks = as_list(value_at(self.configuration, "integrations", "frameworks"))
        chosen = self.configuration.get("managedJobsNamespaceSelector")
        return (not frameworks or _JOBS in frameworks) and not chosen

    @property
    def webhooks(self) -> list[Manifest]:
        """The configurations of Kueue's webhooks, by which the API server calls them."""
        return [each for each in self.objects if each["kind"] in _WEBHOOKS]

    @property
    def converted(self) -> list[Manifest]:
        """The CRDs that a webhook converts."""
        return [each for each in self.crds if any(clients_of(each))]


def configuration_in(text: str, *, where: str) -> Manifest:
    """Reads the file of a Configuration. Raises KueueSetupError."""
    try:
        documents = load_documents(text, where=where)
    except ManifestError as error:
        raise KueueSetupError(f"can't be used: {error}") from error
    fields = as_map(documents[0] if len(documents) == 1 else None)
    is_kind = fields.get("kind") == _CONFIGURATION
    if not (is_kind and group_of({"apiVersion": "", **fields}) == _CONFIG_GROUP):
        raise KueueSetupError(
            f"is no {_CONFIGURATION} of {_CONFIG_GROUP}; write it as in controller_manager_config"
            " of Kueue's ConfigMap"
        )
    return {**fields}


def set_up(
    manifests: Sequence[Manifest],
    own: Manifest | None,
    *,
    webhook_port: int = 0,
    health_port: int = 0,
    certificates: str = "",
) -> KueueSetup:
    """Returns which of a release's manifests are installed, and the manager's Configuration. Raises
    KueueSetupError.

    `own` is the user's Configuration, if there is one; `certificates` is the folder of the
    webhooks' certificate.
    """
    crds = [each for each in manifests if each.get("kind") == CRD]
    if not any(text_at(each, "spec", "group") == GROUP for each in crds):
        raise KueueSetupError(f"has no CRD of {GROUP}; {REMEDY}")
    service = _service_of(manifests)
    _check_conversions(crds, service)
    base = own or _configuration_of(manifests)
    namespace, name = service
    secret = text_at(base, "internalCertManagement", "webhookSecretName") or _SECRET
    installed = [each for each in manifests if each.get("kind") in _INSTALLED]
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret, "namespace": namespace},
        },
        *_led_here(installed, service, webhook_port),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "type": "ExternalName",
                "externalName": "localhost",
                "ports": [{"port": webhook_port}],
            },
        },
    ]
    given = {
        "namespace": namespace,
        "health": _with(base, "health", healthProbeBindAddress=f"127.0.0.1:{health_port}"),
        "metrics": _with(base, "metrics", bindAddress="0"),
        "webhook": {"host": "127.0.0.1", "port": webhook_port, "certDir": certificates},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": name,
            "webhookSecretName": secret,
        },
        "featureGates": _with(base, "featureGates", VisibilityOnDemand=False),
    }
    led = _led_here(crds, service, webhook_port)
    return KueueSetup(led, objects, {**base, **given}, (namespace, secret))


def unknown_field(crds: Iterable[Manifest], program: bytes) -> str:
    """Returns in words a field of Kueue's CRDs that a program doesn't know; empty if it knows all
    of them, as a program of the CRDs' version does.
    """
    known = {name.decode() for name in _TAG.findall(program)}
    for crd in crds:
        if text_at(crd, "spec", "group") == GROUP:
            for (_, kind), schema in schemas_of(crd):
                paths = {each.partition(" ")[0] for each in fields_of(schema)} - {""}
                if unknown := [each for each in paths if each.rpartition(".")[2] not in known]:
                    return f"{min(unknown)} of {kind}"
    return ""


def clients_of(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yields each `clientConfig.service` of a webhook configuration, or of a CRD's conversion."""
    clients: list[Any] = []
    if manifest.get("kind") in _WEBHOOKS:
        clients = [as_map(each).get("clientConfig") for each in as_list(manifest.get("webhooks"))]
    elif manifest.get("kind") == CRD:
        clients = [value_at(manifest, "spec", "conversion", "webhook", "clientConfig")]
    for client in clients:
        service = as_map(client).get("service")
        if isinstance(service, dict):
            yield service


def _service_in(client: Mapping[str, Any]) -> Service:
    return text_at(client, "namespace"), text_at(client, "name")


def _led_here(manifests: Sequence[Manifest], service: Service, port: int) -> list[Manifest]:
    """Returns the manifests, with this port of the machine in all webhooks of a Service."""
    led = copy.deepcopy([*manifests])
    for client in (client for each in led for client in clients_of(each)):
        if _service_in(client) == service:
            client["port"] = port
    return led


def _with(base: Mapping[str, Any], field: str, **values: Any) -> dict[str, Any]:
    return {**as_map(base.get(field)), **values}


def _service_of(manifests: Iterable[Manifest]) -> Service:
    """Returns namespace and name of the Service of all webhooks. Raises KueueSetupError if there
    are several, or the webhook configurations don't have the names that the manager expects.
    """
    configurations = [each for each in manifests if each.get("kind") in _WEBHOOKS]
    services = {_service_in(client) for each in configurations for client in clients_of(each)}
    if len(services) != 1:
        several = names_in_words(["/".join(each) for each in sorted(services)], most=_MOST_NAMES)
        said = f"has webhooks of several Services, {several}, and Kueue has one"
        raise KueueSetupError(f"{said if services else 'has no webhooks of a Service'}; {REMEDY}")
    ((namespace, name),) = services
    for kind, verb in _WEBHOOKS.items():
        wanted = f"{name.removesuffix(_SUFFIX)}-{verb}-webhook-configuration"
        there = {text_at(e, "metadata", "name") for e in configurations if e["kind"] == kind}
        if there != {wanted}:
            names = names_in_words(sorted(there), most=_MOST_NAMES) or "none"
            raise KueueSetupError(f"has as {kind} {names}, and Kueue looks for {wanted}; {REMEDY}")
    if not namespace:
        raise KueueSetupError(f"has webhooks of {shown(name)} without a namespace; {REMEDY}")
    return namespace, name


def _check_conversions(crds: Iterable[Manifest], service: Service) -> None:
    """Raises KueueSetupError if another Service than `service` converts a CRD of Kueue: Kueue makes
    its certificate for one Service, and the API server would refuse it for another.
    """
    for each in crds:
        webhook = value_at(each, "spec", "conversion", "strategy") == "Webhook"
        if webhook and text_at(each, "spec", "group") == GROUP:
            services = [*map(_service_in, clients_of(each))]
            if services != [service]:
                there = f"by the Service {'/'.join(services[0])}" if services else "by no Service"
                raise KueueSetupError(
                    f"has {text_at(each, 'metadata', 'name')}, which is converted {there}, and"
                    f" Kueue's certificate is for {'/'.join(service)}; name this in"
                    " spec.conversion.webhook.clientConfig.service of the CRD"
                )


def _configuration_of(manifests: Iterable[Manifest]) -> Manifest:
    for each in manifests:
        if each.get("kind") == "ConfigMap":
            for key, text in as_texts(each.get("data")).items():
                if _CONFIG_GROUP in text:
                    return configuration_in(text, where=key)
    raise KueueSetupError(
        f"has no ConfigMap with a {_CONFIGURATION} of {_CONFIG_GROUP}; name a file in configuration"
    )
