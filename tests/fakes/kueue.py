"""Manifests as a release of Kueue has them, as far as a rehearsal looks at them."""

import json
from typing import Any, Final

GROUP: Final = "kueue.x-k8s.io"
STORED, SERVED = f"{GROUP}/v1beta1", f"{GROUP}/v1beta2"
CONFIGURATION: Final = {"apiVersion": f"config.{GROUP}/v1beta2", "kind": "Configuration"}
LOCAL_QUEUE: Final = {
    "apiVersion": SERVED,
    "kind": "LocalQueue",
    "metadata": {"name": "gpus", "namespace": "default"},
}


def manifests() -> list[dict[str, Any]]:
    """The CRD stores another version than it serves; what must be left out is broken."""
    metadata = {"namespace": "kueue-system"}
    service = {"name": "kueue-webhook-service", **metadata}

    def webhooks(kind: str, name: str, path: str, **rule: Any) -> dict[str, Any]:
        hook = {
            "name": f"{name}.kb.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"service": {**service, "path": path}},
            "rules": [{"apiVersions": ["*"], "operations": ["CREATE"], **rule}],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind.title()}WebhookConfiguration",
            "metadata": {"name": f"kueue-{kind}-webhook-configuration"},
            "webhooks": [hook],
        }

    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {
            "name": version.rpartition("/")[2],
            "served": True,
            "storage": version == STORED,
            "schema": {"openAPIV3Schema": schema},
        }
        for version in (STORED, SERVED)
    ]
    convert = {"service": {**service, "path": "/convert"}}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"localqueues.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"plural": "localqueues", "singular": "localqueue", "kind": "LocalQueue"},
                "versions": versions,
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": convert, "conversionReviewVersions": ["v1"]},
                },
            },
        },
        webhooks("mutating", "mjob", "/suspend", apiGroups=["batch"], resources=["jobs"]),
        webhooks("validating", "vqueue", "/check", apiGroups=[GROUP], resources=["localqueues"]),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kueue-manager-config", **metadata},
            "data": {"controller_manager_config.yaml": json.dumps(CONFIGURATION)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "kueue-controller-manager", **metadata},
            "spec": "nothing that the API server would take",
        },
    ]
