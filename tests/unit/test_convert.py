"""`kwok-operator convert FILE...`, and `validate` with Cluster API's objects."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cli.main import main
from kwok_operator.clusterapi.discovery import ConvertTerms
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.offline.clusterapi import Converted, convert
from kwok_operator.offline.files import Files
from kwok_operator.schema.check import check_group
from tests.scalables import BOUNDS, CAPACITY, MACHINE, REFERENCE, SIZE, body

SAMPLE = Path(__file__).resolve().parents[2] / "deploy/samples/cluster-api/fleet.yaml"
LARGE = {
    "apiVersion": "infra.example/v1",
    "kind": "XTemplate",
    "metadata": {"name": "large", "namespace": "prod"},
    "status": {
        "capacity": {"cpu": "2", "memory": "4Gi"},
        "nodeInfo": {"architecture": "arm64", "operatingSystem": "linux"},
    },
}


GROUP = REFERENCE["apiGroup"]
AT_GROUP = {key.replace("cluster.x-k8s.io", "a.io"): text for key, text in BOUNDS.items()}


def set_in(manifest: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    *steps, last = place.split(".")
    inner = manifest
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return manifest


def crd(kind: str, plural: str, group: str = GROUP) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": {"kind": kind, "plural": plural}},
    }


def class_and_cluster(version: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same two in either version; the topology has one more deployment than the class knows."""
    old = version == "v1beta1"
    meta = {"labels": {"a": "class", "b": "class"}, "annotations": BOUNDS | MACHINE}
    large = REFERENCE if not old else {"apiVersion": "infra.example/v1", **REFERENCE}
    if old:
        del large["apiGroup"]
    infrastructure = {"ref": large} if old else {"templateRef": large}
    inner = {"metadata": meta, "infrastructure": infrastructure}
    worker = {"class": "small", **({"template": inner} if old else inner)}
    api = f"cluster.x-k8s.io/{version}"
    cluster_class = {
        "apiVersion": api,
        "kind": "ClusterClass",
        "metadata": {"name": "base", "namespace": "prod"},
        "spec": {
            "workers": {"machineDeployments": [worker, {"class": {}}]},
            "patches": [{"name": "p"}],
        },
    }
    own = {"labels": {"b": "own"}, "annotations": {f"{SIZE}min-size": "2"}}
    deployments = [
        {"class": "small", "name": "md", "metadata": own},
        {"class": ["none"], "name": "x"},
    ]
    topology = {
        **({"class": "base"} if old else {"classRef": {"name": "base"}}),
        "workers": {"machineDeployments": deployments},
    }
    cluster = {
        "apiVersion": api,
        "kind": "Cluster",
        "metadata": {"name": "east", "namespace": "prod"},
        "spec": {"topology": topology},
    }
    return cluster_class, cluster


def converted(*objects: Any, terms: ConvertTerms | None = None) -> Converted:
    text = yaml.safe_dump_all(objects)
    found = convert(Files.read([("f.yaml", text)]).others, terms or ConvertTerms())
    for manifest in found.manifests:
        assert not check_group(manifest)
    return found


def said(found: Converted) -> str:
    return "\n".join(map(str, found.findings))


class TestTheCommand:
    def test_the_sample_becomes_valid_groups(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["convert", str(SAMPLE)]) == 0
        out, err = capsys.readouterr()
        groups = {each["metadata"]["name"]: each for each in yaml.safe_load_all(out)}
        assert not err
        assert {name: each["spec"]["targetSize"] for name, each in groups.items()} == {
            "default.web": 3,
            "default.gpu": 0,
        }
        assert groups["default.gpu"]["spec"]["template"]["shape"]["cpu"] == "32"
        for each in groups.values():
            assert not check_group(each)
            assert "kwok-operator.io/clusterapi" not in each["metadata"]["annotations"]
            assert "labels" not in each["metadata"]
        assert main(["validate", str(SAMPLE)]) == 0
        assert "MachineDeployment/default/web" in capsys.readouterr().out

    def test_a_text_stays_a_text_for_kubectl(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        labels = {"capacity.cluster-autoscaler.kubernetes.io/labels": "on=y,often=12e5"}
        file = tmp_path / "fleet.yaml"
        file.write_text(yaml.safe_dump(body(annotations=MACHINE | labels)), encoding="utf-8")
        assert main(["convert", str(file)]) == 0
        (group,) = load_documents(capsys.readouterr().out, where="the groups")
        found = group["spec"]["template"]["shape"]["labels"]
        assert (found["on"], found["often"]) == ("y", "12e5")

    @pytest.mark.parametrize("command", ["convert", "validate"])
    def test_a_finding_has_file_and_line_and_makes_it_one(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        file = tmp_path / "fleet.yaml"
        text = SAMPLE.read_text(encoding="utf-8").replace('max-size: "20"', 'max-size: "0x20"')
        file.write_text(text, encoding="utf-8")
        line = next(n for n, row in enumerate(text.splitlines(), 1) if "0x20" in row)
        assert main([command, str(file)]) == 1
        out, err = capsys.readouterr()
        assert err.startswith(f"{file}:{line}: ")
        assert "autoscaling" not in out
        assert "default.web" in out

    @pytest.mark.parametrize(
        "text", ["", "kind: Pod\napiVersion: v1\n", "kind: MachineSet\napiVersion: other.io/v1\n"]
    )
    def test_nothing_to_convert_makes_it_two(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
    ) -> None:
        file = tmp_path / "other.yaml"
        file.write_text(text, encoding="utf-8")
        assert main(["convert", str(file)]) == 2
        assert main(["convert", str(tmp_path / "none.yaml")]) == 2
        assert not capsys.readouterr().out

    def test_flags_and_environment_are_cluster_autoscalers(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
        most = {"a.io/cluster-api-autoscaler-node-group-max-size": "3"}
        other = body("other", annotations=MACHINE | most)
        files[0].write_text(yaml.safe_dump(body()), encoding="utf-8")
        files[1].write_text(yaml.safe_dump(other | {"apiVersion": "a.io/v1"}), encoding="utf-8")
        flag = "--node-group-auto-discovery=clusterapi:namespace=dev"
        assert main(["convert", str(files[0]), flag]) == 0
        assert not capsys.readouterr().out
        assert main(["convert", str(files[0]), f"{flag}:"]) == 2
        monkeypatch.setenv("CAPI_GROUP", "a.io")
        monkeypatch.setenv("CAPI_SCALE_ZERO_DEFAULT_ARCH", "s390x")
        assert main(["convert", *map(str, files)]) == 0
        (group,) = yaml.safe_load_all(capsys.readouterr().out)
        assert group["metadata"]["name"] == "prod.other"
        assert group["spec"]["autoscaling"]["maxSize"] == 3
        assert group["spec"]["template"]["shape"]["arch"] == "s390x"


class TestObjects:
    def test_lists_and_templates_of_other_documents_are_found(self) -> None:
        machine = {"infrastructureRef": REFERENCE}
        inner = body(annotations=BOUNDS, machine=machine)
        listed = {"apiVersion": "v1", "kind": "List", "items": [inner]}
        found = converted(listed, LARGE)
        shape = found.manifests[0]["spec"]["template"]["shape"]
        assert (shape["cpu"], shape["arch"]) == ("2", "arm64")
        assert len(found.looked_at) == 2

    def test_a_template_that_is_not_among_the_files_is_a_note(self) -> None:
        machine = {"infrastructureRef": REFERENCE}
        elsewhere = LARGE | {"metadata": {"name": "large", "namespace": "dev"}}
        found = converted(body(machine=machine), elsewhere)
        assert not found.findings
        assert any("XTemplate prod/large" in note for note in found.notes)

    @pytest.mark.parametrize(
        ("parts", "exported", "known"),
        [
            (None, {}, False),
            ({}, {}, False),
            ({}, {"uid": "1"}, True),
            ({"status": {}}, {}, True),
        ],
    )
    def test_a_missing_status_is_noted(self, parts: Any, exported: Any, known: bool) -> None:
        """Cluster API's provider may write cpu, memory and arch into it."""
        metadata = {"name": "large", "namespace": "prod", **exported}
        template = LARGE | {"metadata": metadata}
        del template["status"]
        template |= parts or {}
        reference = {"infrastructureRef": REFERENCE}
        some = [] if parts is None else [template]
        found = converted(body(annotations=BOUNDS, machine=reference), *some)
        assert bool(found.findings) is known
        assert any("XTemplate prod/large" in note for note in found.notes) is not known
        assert any("from zero" in note for note in found.notes) is not known
        assert len(found.looked_at) == 1 + len(some)

    @pytest.mark.parametrize(
        ("definition", "served"),
        [
            (crd("XTemplate", "xtemplates"), True),
            (crd("Other", "others", "other.example"), True),
            (crd("Other", "others"), False),
            (crd("XTemplate", "xtemplatez"), False),
        ],
    )
    def test_crds_show_unserved_templates(self, definition: Any, served: bool) -> None:
        found = converted(definition, body(machine={"infrastructureRef": REFERENCE}), LARGE)
        used = {each.value["kind"] for each in found.looked_at}
        assert "XTemplate" in used
        assert ("CustomResourceDefinition" in used) == (definition["spec"]["group"] == GROUP)
        assert (not found.findings) is served
        assert ("infrastructureRef" in said(found)) is not served

    def test_two_of_one_name_are_reported_and_the_first_counts(self) -> None:
        found = converted(body(replicas=1), body(replicas=2))
        assert [each["spec"]["targetSize"] for each in found.manifests] == [1]
        assert "MachineDeployment/prod/web" in said(found)

    def test_an_exported_set_of_a_deployment_is_no_group(self) -> None:
        owners = [{"kind": "MachineDeployment", "name": "web", "uid": "1", "apiVersion": "x/v1"}]
        exported = body("web-x", kind="MachineSet", ownerReferences=owners, uid="2")
        found = converted(body(), exported)
        assert [each["metadata"]["name"] for each in found.manifests] == ["prod.web"]
        assert not found.findings
        assert any("web-x" in note for note in found.notes)

    @pytest.mark.parametrize(
        ("parts", "named"),
        [
            ({"annotations": {f"{CAPACITY}cpu": 4}}, f"metadata.annotations.{CAPACITY}cpu"),
            ({"labels": {"a": True}}, "metadata.labels.a"),
            ({"handed_on": {"a": 1.5}}, "spec.template.metadata.labels.a"),
            ({"selector": {"matchLabels": {"a": 1}}}, "spec.selector.matchLabels.a"),
        ],
    )
    def test_values_that_are_no_text_are_reported(self, parts: Any, named: str) -> None:
        assert f"{named}: must be text" in said(converted(body(**parts)))

    @pytest.mark.parametrize(
        ("place", "value"),
        [
            ("metadata.annotations", ["x"]),
            ("metadata.labels", "x"),
            ("metadata.labels.team", "${TEAM}"),
            ("metadata.labels.x y", "z"),
            ("metadata.annotations.x y", "z"),
            ("spec.template.metadata.labels.team", "x" * 64),
            ("spec.selector.matchLabels.team", "${TEAM}"),
            ("metadata.name", "${CLUSTER_NAME}-md-0"),
            ("metadata.name", "x" * 254),
            ("metadata.namespace", "a.b"),
            ("spec", "x"),
            ("spec.replicas", "3"),
            ("spec.replicas", "${WORKERS}"),
            ("spec.replicas", 2.5),
            ("spec.replicas", True),
            ("spec.selector", "pool=web"),
            ("spec.template.metadata", []),
            ("spec.template.spec.infrastructureRef.kind", 1),
        ],
    )
    def test_what_the_api_server_refuses_has_a_line(self, place: str, value: Any) -> None:
        machine = {"infrastructureRef": dict(REFERENCE)}
        wrong = body(machine=machine, selector={"matchLabels": {}})
        wrong["metadata"]["annotations"]["A.io/free"] = "${ANY}"
        found = converted(set_in(wrong, place, value))
        (finding,) = [each for each in found.findings if f"{place}: " in each.message]
        lines = yaml.safe_dump_all([wrong]).splitlines()
        last = place.rpartition(".")[2]
        assert lines[(finding.line or 0) - 1].lstrip().startswith(f"{last}:")
        assert not any("is not set" in note for note in found.notes) or place == "spec"

    @pytest.mark.parametrize(
        ("place", "value"),
        [
            ("apiVersion", "cluster.x-k8s.io/v1beta3"),
            ("spec.clusterName", None),
            ("spec.clusterName", ""),
            ("spec.clusterName", "${CLUSTER_NAME}"),
            ("spec.template.spec.clusterName", None),
            ("spec.template.spec.clusterName", "west"),
            ("metadata.name", "x" * 64),
            (
                "spec.template.spec.infrastructureRef",
                {"apiVersion": "infra.example/v1", "kind": "XTemplate", "name": "large"},
            ),
            ("spec.selector", {"matchLabels": {"pool": "api"}}),
            ("spec.selector", {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}),
            ("spec.replicas", 10),
        ],
    )
    def test_what_cluster_api_refuses_has_a_line(self, place: str, value: Any) -> None:
        wrong = body(handed_on={"pool": "web"})
        set_in(wrong, place, value)
        found = converted(wrong)
        (finding,) = found.findings
        assert f"{place}: " in finding.message
        lines = yaml.safe_dump_all([wrong]).splitlines()
        assert lines[(finding.line or 0) - 1].lstrip().startswith(place.rpartition(".")[2])
        own = body(handed_on={"pool": "web"}, annotations=AT_GROUP | MACHINE)
        set_in(own, place, value)
        own["apiVersion"] = "a.io/v1"
        another = converted(own, terms=ConvertTerms(keys=Keys("a.io")))
        assert bool(another.findings) == (place == "spec.replicas"), "no rule of another API group"

    @pytest.mark.parametrize(
        ("selector", "noted"),
        [
            (None, True),
            ({}, True),
            ({"matchLabels": None}, True),
            ({"matchLabels": {"pool": "web", "cluster.x-k8s.io/cluster-name": "east"}}, False),
        ],
    )
    def test_selectors_that_a_webhook_completes(self, selector: Any, noted: bool) -> None:
        found = converted(set_in(body(handed_on={"pool": "web"}), "spec.selector", selector))
        assert not found.findings
        assert any("spec.selector" in note for note in found.notes) is noted

    def test_findings_about_a_template_stand_at_the_scalable(self) -> None:
        silent = LARGE | {"status": {}}
        found = converted(body(machine={"infrastructureRef": REFERENCE}), silent)
        (finding,) = found.findings
        assert finding.line is not None
        assert finding.message.count("web") == 1

    @pytest.mark.parametrize(
        ("replicas", "size"), [(None, 0), (-4, 0), (2_000_000, 1_000_000), (7, 7)]
    )
    def test_the_target_is_one_that_a_group_can_have(self, replicas: Any, size: int) -> None:
        assert converted(body(replicas=replicas)).manifests[0]["spec"]["targetSize"] == size


class TestClasses:
    @pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
    def test_a_topology_becomes_groups(self, version: str) -> None:
        found = converted(*class_and_cluster(version), LARGE)
        (first,) = [each for each in found.groups if each.name == "prod.east-md"]
        assert (first.min_size, first.max_size) == (2, 9)
        assert {key: first.scalable.labels[key] for key in "ab"} == {"a": "class", "b": "own"}
        assert first.scalable.template_labels["b"] == "own"
        assert first.capacity.shape["arch"] == "arm64"
        assert (first.size, first.default_size) == (None, 2)
        assert found.manifests[0]["spec"]["targetSize"] == 2
        assert "has no such class" in said(found)
        assert any("patches" in note for note in found.notes)

    def test_a_missing_class_is_reported_at_the_topology(self) -> None:
        _, cluster = class_and_cluster("v1beta2")
        found = converted(cluster)
        (finding,) = found.findings
        text = yaml.safe_dump(cluster).splitlines()
        assert finding.line is not None
        assert text[finding.line - 1].strip() == "topology:"
        assert not found.groups

    def test_a_finding_about_a_topologys_annotation_has_its_line(self) -> None:
        its_class, cluster = class_and_cluster("v1beta2")
        (entry, _) = cluster["spec"]["topology"]["workers"]["machineDeployments"]
        entry["metadata"]["annotations"] = {f"{SIZE}min-size": "many"}
        found = converted(cluster, its_class)
        lines = yaml.safe_dump_all([cluster, its_class]).splitlines()
        (line,) = [each.line for each in found.findings if "many" in each.message]
        assert line is not None
        assert "many" in lines[line - 1]

    @pytest.mark.parametrize(
        ("own", "part"),
        [(True, "machineDeployments"), (False, "machineDeployments"), (True, "machinePools")],
    )
    def test_replicas_beside_bounds_are_reported_at_their_line(self, own: bool, part: str) -> None:
        its_class, cluster = class_and_cluster("v1beta2")
        entry = {"class": "small", "name": "md", "replicas": 3}
        worker = its_class["spec"]["workers"]["machineDeployments"][0]
        worker["metadata"] = {"annotations": MACHINE if own else BOUNDS | MACHINE}
        its_class["spec"]["workers"] = {part: [worker]}
        if own:
            entry["metadata"] = {"annotations": BOUNDS}
        cluster["spec"]["topology"]["workers"] = {part: [entry]}
        (finding,) = converted(cluster, its_class, LARGE).findings
        assert (
            yaml.safe_dump(cluster).splitlines()[(finding.line or 0) - 1].strip() == "replicas: 3"
        )
        del entry["replicas"]
        assert not converted(cluster, its_class, LARGE).findings


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "small", "9Gi"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "name", "class", "template", "labels", "ref"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
PLACES = st.sampled_from(
    [
        *("metadata", "metadata.name", "metadata.labels", "metadata.annotations", "spec"),
        *("spec.topology", "spec.topology.classRef", "spec.topology.workers", "spec.workers"),
        *("spec.workers.machineDeployments", "spec.topology.workers.machineDeployments"),
        *("spec.template", "spec.template.spec", "spec.template.spec.taints", "spec.replicas"),
        *("spec.group", "spec.names", "status", "status.capacity", "status.nodeInfo", "kind"),
    ]
)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), PLACES, JSON), min_size=1, max_size=3))
def test_nothing_in_a_file_makes_it_fail(changes: list[tuple[int, str, Any]]) -> None:
    machine = {"infrastructureRef": REFERENCE}
    objects: list[Any] = [*class_and_cluster("v1beta2"), body(machine=machine), LARGE]
    objects = yaml.safe_load(yaml.safe_dump([*objects, crd("XTemplate", "xtemplates")]))
    for number, place, value in changes:
        *steps, last = place.split(".")
        inner: Any = objects[number]
        for step in steps:
            inner = inner.setdefault(step, {}) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[last] = value
    for terms in (ConvertTerms(), ConvertTerms(keys=Keys("a.io"))):
        found = converted(*objects, terms=terms)
        assert all("\n" not in str(each) for each in found.findings)
