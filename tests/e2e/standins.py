"""CRDs of others that deploy/ makes objects of, as far as it uses them.

The kinds of the Prometheus Operator, of cert-manager and of kwok, with the fields, types and
choices that theirs have, written down anew. Any other field is refused, as one that theirs don't
have would be.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}
DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}


def _object(*required: str, **fields: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": fields}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _choice(*choices: str) -> Schema:
    return {"type": "string", "enum": list(choices)}


SERVICE_MONITOR = _object(
    "selector",
    "endpoints",
    selector=_object(matchLabels=TEXTS),
    endpoints=_list(
        _object(
            port=TEXT,
            path=TEXT,
            interval=DURATION,
            scheme=_choice("http", "https"),
            honorLabels=TRUTH,
        )
    ),
)
_RULE = _object(
    "expr",
    alert=TEXT,
    record=TEXT,
    expr={"x-kubernetes-int-or-string": True},
    labels=TEXTS,
    annotations=TEXTS,
    keep_firing_for=DURATION,
)
_RULE["properties"]["for"] = DURATION
PROMETHEUS_RULE = _object(
    groups=_list(_object("name", name=TEXT, interval=DURATION, rules=_list(_RULE)))
)
ISSUER = _object(selfSigned={"type": "object"}, ca=_object("secretName", secretName=TEXT))
CERTIFICATE = _object(
    "issuerRef",
    "secretName",
    isCA=TRUTH,
    commonName=TEXT,
    dnsNames=_list(TEXT),
    duration=TEXT,
    renewBefore=TEXT,
    secretName=TEXT,
    usages=_list(_choice("digital signature", "server auth", "client auth")),
    privateKey=_object(
        algorithm=_choice("RSA", "ECDSA", "Ed25519"),
        size={"type": "integer"},
        rotationPolicy=_choice("Never", "Always"),
    ),
    issuerRef=_object("name", name=TEXT, kind=TEXT, group=TEXT),
)
STAGE = _object(
    "resourceRef",
    "next",
    resourceRef=_object("kind", apiGroup=TEXT, kind=TEXT),
    selector=_object(
        matchLabels=TEXTS,
        matchExpressions=_list(_object("key", key=TEXT, operator=TEXT, values=_list(TEXT))),
    ),
    weight={"type": "integer", "minimum": 0},
    next=_object(statusTemplate=TEXT),
)

KINDS = (
    ("monitoring.coreos.com", "v1", "ServiceMonitor", SERVICE_MONITOR),
    ("monitoring.coreos.com", "v1", "PrometheusRule", PROMETHEUS_RULE),
    ("cert-manager.io", "v1", "Issuer", ISSUER),
    ("cert-manager.io", "v1", "Certificate", CERTIFICATE),
    ("kwok.x-k8s.io", "v1alpha1", "Stage", STAGE),
)
CLUSTER_SCOPED = {"Stage"}


def crds() -> dict[str, Any]:
    """All of them, as a List."""
    items = [_crd(group, version, kind, spec) for group, version, kind, spec in KINDS]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def names() -> list[str]:
    """As kubectl takes them."""
    return [f"crd/{kind.lower()}s.{group}" for group, _, kind, _ in KINDS]


def _crd(group: str, version: str, kind: str, spec: Schema) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object("spec", spec=spec)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster" if kind in CLUSTER_SCOPED else "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }
