"""The generated CustomResourceDefinitions: of groups (kng), pools (kpool)
and pods' profiles (kpp).
"""

import yaml

from kwok_operator.schema.crd import CRD_DIRECTORY, render
from kwok_operator.schema.definitions import definitions
from tests.fakes.schema import nodes

POOL_CRD, CRD, PROFILE_CRD = definitions()
(VERSION,) = CRD["spec"]["versions"]
(POOL_VERSION,) = POOL_CRD["spec"]["versions"]
(PROFILE_VERSION,) = PROFILE_CRD["spec"]["versions"]

_MAX_BYTES = 256 * 1024
"""`kubectl apply` keeps the object in an annotation, which holds no more."""

# What a v1 CRD may contain in a schema; the API server refuses or drops anything else.
_ALLOWED = frozenset(
    """
    additionalProperties default description enum format items maxItems maxLength maxProperties
    maximum minItems minLength minimum nullable properties required type x-kubernetes-int-or-string
    x-kubernetes-list-map-keys x-kubernetes-list-type x-kubernetes-preserve-unknown-fields
    x-kubernetes-validations
    """.split()
)


ALL = {
    path: node
    for kind, version in (("kng", VERSION), ("kpool", POOL_VERSION), ("kpp", PROFILE_VERSION))
    for path, node in nodes(version["schema"]["openAPIV3Schema"], kind)
}
SPEC = {path: node for path, node in ALL.items() if path.split(".")[1:2] == ["spec"]}
FIELDS = {
    path: node
    for path, node in ALL.items()
    if path.split(".")[1:2] in (["spec"], ["status"]) and not path.endswith("[]")
}


def test_the_files_are_what_the_models_say() -> None:
    files = {file.name: file.read_text() for file in CRD_DIRECTORY.glob("*.yaml")}
    assert files == render(), "run `make crds`"
    listed = yaml.safe_load((CRD_DIRECTORY / "Kustomization").read_text())["resources"]
    assert set(listed) == files.keys()
    assert max(len(text.encode()) for text in files.values()) < _MAX_BYTES * 0.75


def test_the_files_have_no_anchors() -> None:
    marks = (yaml.AnchorToken, yaml.AliasToken)
    assert not [t for text in render().values() for t in yaml.scan(text) if isinstance(t, marks)]


def test_the_schema_is_structural() -> None:
    for path, node in ALL.items():
        assert set(node) <= _ALLOWED, path
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert ("items" in node) == (node.get("type") == "array"), path
        assert not ("properties" in node and "additionalProperties" in node), path
        if node.get("x-kubernetes-preserve-unknown-fields"):
            assert node["type"] == "object", path


def test_stored_defaults_and_nulls_are_the_exception() -> None:
    defaults = {path: node["default"] for path, node in ALL.items() if "default" in node}
    assert defaults == {
        "kng.spec": {},
        "kng.spec.autoscaling.minSize": 0,
        "kpool.spec": {},
        "kpp.spec": {},
    }
    objects = {
        path
        for path, node in FIELDS.items()
        if node.get("type") == "object" and path in SPEC and path.count(".") > 1
    }
    # The presence of these says something; null would take it back silently.
    source = "kng.spec.template.from"
    presence_counts = {"kng.spec.autoscaling", "kng.spec.autoscaling.options", "kng.spec.price"}
    presence_counts |= {"kng.spec.template.shape.gpu", source}
    presence_counts |= {f"{source}.configMap", f"{source}.nodes"}
    presence_counts |= {f"{source}.nodes.{way}" for way in ("selector", "annotation", "cluster")}
    cloud = "kng.spec.cloud"
    delays = {path for path, node in ALL.items() if "fixed" in node.get("properties", ())}
    presence_counts |= {p for p in objects if p in delays or p.rpartition(".")[0] in delays}
    failures = ("neverRegisters", "neverReady", "slowDeletion")
    presence_counts |= {f"{cloud}.flapping", *(f"{cloud}.failures.{what}" for what in failures)}
    presence_counts |= {f"{cloud}.devices.{what}" for what in ("neverPublished", "failures")}
    usage = "kpp.spec.usage"
    presence_counts |= {"kpp.spec.namespaceSelector", "kpp.spec.podSelector"}
    presence_counts |= {p for p in objects if p.startswith(f"{usage}.")}
    assert {path for path in objects if not ALL[path].get("nullable")} == presence_counts
    assert not [p for p, n in ALL.items() if n.get("nullable") and n.get("type") != "object"]


def test_every_field_is_described_with_its_default() -> None:
    assert len(FIELDS) > 250
    for path, node in FIELDS.items():
        text = node["description"]
        assert text[0].isupper() and text.rstrip('"').endswith((".", "}")), path
        assert len(text) < 400, path
        parent, _, name = path.rpartition(".")
        optional = path in SPEC and path.count(".") > 2 and name != "nodesToDelete"
        if not optional or name in ALL[parent].get("required", ()):
            continue
        if node.get("type") != "object" and name not in ("labels", "taints"):
            assert "Default: " in text, path


def test_what_rules_read_is_bounded() -> None:
    for path, node in SPEC.items():
        if node.get("type") == "string" and "enum" not in node:
            # No rule reads the value of an annotation, which may be long.
            most = 4_096 if path.endswith(".annotation.value") else 317
            assert node["maxLength"] <= most, path
        if node.get("type") == "array":
            most = 20_000 if path.endswith(".nodesToDelete") else 100
            assert node["maxItems"] <= most, path
            assert node["x-kubernetes-list-type"] in ("atomic", "map"), path
        if "additionalProperties" in node:
            assert node["maxProperties"] <= 128, path
        if node.get("type") == "integer":
            assert node["minimum"] in (0, 1), path
            assert node["maximum"] <= 1_000_000, path


def test_fields_are_those_of_the_contract() -> None:
    assert set(ALL["kng.spec"]["properties"]) == set(
        "targetSize paused template guardTaint scaleDown updateStrategy autoscaling price"
        " cloud".split()
    )
    assert set(ALL["kpool.spec"]["properties"]) == {"instances", "resources", "error", "outage"}
    profile = "namespaceSelector podSelector nodeGroups priority seed start run failures"
    assert set(ALL["kpp.spec"]["properties"]) == set(f"{profile} termination usage".split())
    assert set(ALL["kng.spec.template"]["properties"]) == set(
        "from node shape companions network topology keepImages bornReady".split()
    )
    assert set(ALL["kng.spec.template.from"]["properties"]) == {"configMap", "nodes"}
    assert set(ALL["kng.spec.scaleDown"]["properties"]) == {"order", "nodesToDelete", "pods"}
    fields = {"minSize", "maxSize", "options", "gpuLabel", "gpuTypes"}
    assert set(ALL["kng.spec.autoscaling"]["properties"]) == fields
    assert "required" not in ALL["kng.spec"]
    assert "kng.spec.template.shape.gpu.count" in FIELDS
    assert FIELDS["kng.spec.scaleDown.nodesToDelete"]["maxItems"] == 20_000
    assert FIELDS["kng.spec.scaleDown.nodesToDelete"]["x-kubernetes-list-type"] == "atomic"


def test_every_rule_has_a_plain_message() -> None:
    rules = [r for node in ALL.values() for r in node.get("x-kubernetes-validations", ())]
    assert len(rules) > 60
    for rule in rules:
        assert "messageExpression" not in rule
        assert "must" in rule["message"] or "shape." in rule["message"]
        assert "self." not in rule["message"]


def test_columns() -> None:
    columns = VERSION["additionalPrinterColumns"]
    shown = [c["name"] for c in columns if not c.get("priority")]
    wide = [c["name"] for c in columns if c.get("priority") == 1]
    assert shown == ["TARGET", "CURRENT", "READY", "STATUS", "AGE"]
    assert wide == ["MIN", "MAX", "CPU", "MEMORY"]
    columns = POOL_VERSION["additionalPrinterColumns"]
    shown = [c["name"] for c in columns if not c.get("priority")]
    wide = [c["name"] for c in columns if c.get("priority") == 1]
    assert shown == ["INSTANCES", "LIMIT", "REFUSED", "OUTAGE", "AGE"]
    assert wide == ["CPU", "CPU-LIMIT", "GPU", "GPU-LIMIT"]

    columns = PROFILE_VERSION["additionalPrinterColumns"]
    shown = [c["name"] for c in columns if not c.get("priority")]
    assert shown == ["PRIORITY", "STAGES", "COMPILED", "PRESENT", "AGE"]


def test_names_and_subresources() -> None:
    assert POOL_CRD["metadata"]["name"] == "kwokcapacitypools.kwok-operator.io"
    assert POOL_CRD["spec"]["scope"] == "Cluster"
    assert POOL_CRD["spec"]["names"]["shortNames"] == ["kpool"]
    assert POOL_CRD["spec"]["names"]["categories"] == ["kwok"]
    assert POOL_VERSION["subresources"] == {"status": {}}
    assert PROFILE_CRD["metadata"]["name"] == "kwokpodprofiles.kwok-operator.io"
    assert PROFILE_CRD["spec"]["scope"] == "Cluster"
    assert PROFILE_CRD["spec"]["names"]["shortNames"] == ["kpp"]
    assert PROFILE_CRD["spec"]["names"]["categories"] == ["kwok"]
    assert PROFILE_VERSION["subresources"] == {"status": {}}
    assert CRD["metadata"]["name"] == "kwoknodegroups.kwok-operator.io"
    assert CRD["spec"]["scope"] == "Cluster"
    assert CRD["spec"]["names"]["shortNames"] == ["kng"]
    assert CRD["spec"]["names"]["categories"] == ["kwok"]
    assert VERSION["name"] == "v1alpha1"
    assert VERSION["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.targetSize",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
