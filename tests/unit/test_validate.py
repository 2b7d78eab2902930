"""`kwok-operator validate FILE...`: what a user sees, and the exit code that CI sees."""

import io
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cli.main import main
from kwok_operator.cli.validate import table
from kwok_operator.offline.validation import ValidationReport, validate
from tests import cloudmanifests, manifests, podmanifests
from tests.manifests import Manifest

GOOD = manifests.GOOD | cloudmanifests.GOOD | podmanifests.GOOD

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: kwok-provider-config, namespace: sim}
data:
  config: |
    apiVersion: v1alpha1
    readNodesFrom: configmap
    nodegroups:
      fromNodeLabelKey: pool
    nodes:
      skipTaint: true
    configmap:
      name: templates
"""
NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: m5
  labels: {pool: Big_Pool}
  annotations: {cluster-autoscaler.kwok.nodegroup/desired-count: "5"}
status: {capacity: {cpu: 8, memory: 32Gi}}
"""
TEMPLATES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: templates, namespace: sim}
data:
  templates: |
""" + "".join(f"    {line}\n" for line in NODE.splitlines())
GROUP = """\
apiVersion: kwok-operator.io/v1alpha1
kind: KwokNodeGroup
metadata: {name: batch}
spec:
  targetSize: 3
  template:
    shape: {cpu: 4, memory: 16Gi}
"""
POOL = """\
apiVersion: kwok-operator.io/v1alpha1
kind: KwokCapacityPool
metadata: {name: zone-b}
spec:
  instances: 5
"""
PROFILE = """\
apiVersion: kwok-operator.io/v1alpha1
kind: KwokPodProfile
metadata: {name: web}
spec:
  start:
    delay: {fixed: 5s}
"""
APP, OTHER = ({"matchLabels": {"app": name}} for name in ("web", "batch"))


def report(*texts: str) -> ValidationReport:
    return validate([(f"f{i}.yaml", text) for i, text in enumerate(texts)])


def said(*texts: str) -> list[str]:
    return [str(finding) for finding in report(*texts).findings]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestTheCommand:
    def test_groups_are_a_table(self, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (write / "a.yaml").write_text(CONFIG + "---\n" + GROUP)
        (write / "b.yml").write_text(TEMPLATES)
        assert main(["validate", "a.yaml", "b.yml"]) == 0
        captured = capsys.readouterr()
        heading, *rows = [line.split() for line in captured.out.splitlines()]
        assert heading == "GROUP VALUE MIN MAX DESIRED SOURCE CPU MEMORY".split()
        assert rows[0] == ["batch", "-", "-", "-", "3", "manifest", "4", "16Gi"]
        assert rows[1][0].startswith("big-pool-")
        assert rows[1][1:] == ["Big_Pool", "0", "200", "5", "configmap", "8", "32Gi"]
        assert captured.err == "2 groups, no problems\n"

    def test_directories_are_read(self, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (write / "config.yaml").write_text(CONFIG)
        (write / "templates.json").write_text(yaml.safe_dump(yaml.safe_load(TEMPLATES)))
        (write / "README.md").write_text("{")
        assert main(["validate", "."]) == 0
        assert "1 group, no problems" in capsys.readouterr().err

    def test_standard_input(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: [")))
        assert main(["validate", "-"]) == 1
        assert capsys.readouterr().err.startswith("standard input:2: is not YAML: ")

    def test_problems_are_on_stderr(self, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (write / "group.yaml").write_text(GROUP.replace("cpu: 4", "cpus: 4"))
        assert main(["validate", "group.yaml"]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == (
            "group.yaml:7: spec.template.shape.cpus: there is no such field; did you mean cpu?\n"
            "0 groups, 1 problem\n"
        )

    def test_what_cant_be_read(self, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (write / "empty").mkdir()
        (write / "some").mkdir()
        (write / "some/good.yaml").write_text(GROUP)
        for name in ("binary.yaml", "some/odd.yaml"):
            (write / name).write_bytes(b"\xff\xfe\x00")
        for name, sentence in (
            ("none.yaml", "kwok-operator: none.yaml: No such file or directory; check the name"),
            ("empty", "kwok-operator: empty: has no file that ends in .yaml, .yml, .json"),
            ("binary.yaml", "kwok-operator: binary.yaml: is not UTF-8 text"),
            ("some", "kwok-operator: some/odd.yaml: is not UTF-8 text"),
        ):
            assert main(["validate", name]) == 2
            assert capsys.readouterr().err == f"{sentence}\n"

    def test_nothing_to_check(self, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (write / "a.yaml").write_text("{apiVersion: v1, kind: Secret, metadata: {name: s}}")
        assert main(["validate", "a.yaml"]) == 2
        assert capsys.readouterr().err == (
            "note: not looked at: Secret/s\n"
            "kwok-operator: nothing in these files is for the operator\n"
        )

    def test_no_file_at_all_is_a_wrong_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["validate"])
        assert caught.value.code == 2

    def test_no_escape_sequences(self, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (write / "a.yaml").write_text(GROUP.replace("batch", '"a\\e[2J"'))
        assert main(["validate", "a.yaml"]) == 1
        assert "\x1b" not in capsys.readouterr().err


class TestGroups:
    @pytest.mark.parametrize(("name", "manifest"), GOOD.items())
    def test_what_the_api_server_takes(self, name: str, manifest: Manifest) -> None:
        found = report(yaml.safe_dump(manifest))
        assert (found.findings, len(found.rows) + found.pools + found.profiles) == ((), 1)

    def test_a_list_as_kubectl_prints_it(self) -> None:
        items = [GOOD["longest name"], manifests.BAD["unknown field"][0]]
        text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
        (sentence,) = said(text)
        line = next(n for n, row in enumerate(text.splitlines(), 1) if "targetsize" in row)
        assert sentence.startswith(f"f0.yaml:{line}: items[1]: spec.targetsize: there is no such")

    def test_pools_are_counted(self, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (write / "group.yaml").write_text(f"{GROUP}  cloud: {{capacityPools: [zone-b, quota]}}\n")
        (write / "pool.yaml").write_text(POOL)
        assert main(["validate", "."]) == 0
        assert capsys.readouterr().err == (
            "note: KwokNodeGroup/batch: KwokCapacityPool quota is not among the files; until it"
            " exists, no instance comes\n"
            "1 group, 1 pool, no problems\n"
        )
        assert main(["validate", "pool.yaml"]) == 0
        assert capsys.readouterr().err == "0 groups, 1 pool, no problems\n"

    def test_mistakes_of_a_pool_have_their_lines(self) -> None:
        odd = POOL.replace("instances", "instanses")
        assert said(POOL, odd) == [
            "f1.yaml:3: metadata.name: zone-b stands in f0.yaml already",
            "f1.yaml:5: spec.instanses: there is no such field; did you mean instances?",
        ]

    def test_the_template_is_resolved(self) -> None:
        text = GROUP + "    node:\n      status:\n        capacity: {pods: many}\n"
        assert said(text) == [
            "f0.yaml:10: spec.template.node.status.capacity.pods: 'many' is not a quantity such as"
            " 4, 500m or 16Gi"
        ]

    def test_two_of_one_name(self) -> None:
        assert said(GROUP, GROUP) == ["f1.yaml:3: metadata.name: batch stands in f0.yaml already"]

    @pytest.mark.parametrize(
        ("source", "sentence"),
        [
            ("{name: templates, node: m6}", "key templates: has no Node 'm6'; there is m5"),
            ("{name: templates, key: a}", "ConfigMap templates: has no key a; there is templates"),
        ],
    )
    def test_its_configmap_is_looked_into(self, source: str, sentence: str) -> None:
        (found,) = said(f"{GROUP}    from: {{configMap: {source}}}\n", TEMPLATES)
        assert found.startswith("f0.yaml:8: ")
        assert sentence in found

    def test_what_a_configmap_gives_is_shown(self) -> None:
        text = GROUP.replace(
            "shape: {cpu: 4, memory: 16Gi}", "from: {configMap: {name: templates}}"
        )
        (row,) = report(text, TEMPLATES).rows
        assert (row.cpu, row.memory) == ("8", "32Gi")

    @pytest.mark.parametrize(
        ("source", "note"),
        [
            ("configMap: {name: elsewhere}", "ConfigMap elsewhere is not among the files"),
            ("nodes: {name: real}", "template.from.nodes needs a cluster"),
        ],
    )
    def test_what_files_dont_say_is_a_note(self, source: str, note: str) -> None:
        found = report(f"{GROUP}    from: {{{source}}}\n")
        assert found.findings == ()
        assert note in found.notes[0]


class TestProfiles:
    def test_mistakes_have_their_lines(self) -> None:
        odd = PROFILE.replace("fixed", "fixd") + "  failures:\n    - {type: Error}\n"
        assert said(PROFILE, odd) == [
            "f1.yaml:3: metadata.name: web stands in f0.yaml already",
            "f1.yaml:6: spec.start.delay.fixd: there is no such field; did you mean fixed?",
            "f1.yaml:8: spec.failures[0]: must have probability, indexes or both, to say which pods"
            " fail",
        ]

    @pytest.mark.parametrize(
        ("first", "second", "words"),
        [
            ({}, {"podSelector": APP}, "the profile a holds for all pods"),
            ({"podSelector": APP}, {}, "pods that are also of a live by that"),
            ({"podSelector": APP}, {"podSelector": OTHER}, None),
            ({}, {"priority": 1, "podSelector": APP}, "pods that are also of b live by that"),
            ({"namespaceSelector": APP}, {}, "pods that are also of a live by that"),
            ({"namespaceSelector": APP}, {"namespaceSelector": OTHER}, None),
            ({"nodeGroups": ["gpu"]}, {"podSelector": APP}, "pods that are also of a live by that"),
            ({"failures": [{"type": "Error", "probability": "0.6"}] * 2}, None, "add up to more"),
            ({"nodeGroups": ["gpu"]}, None, "KwokNodeGroup gpu is not among the files"),
            ({"nodeGroups": ["batch"]}, None, None),
        ],
    )
    def test_profiles_are_looked_at_together(
        self, first: Manifest, second: Manifest | None, words: str | None
    ) -> None:
        profiles = [podmanifests.profile(first, name="a")]
        profiles += [podmanifests.profile(second, name="b")] if second is not None else []
        found = report(yaml.safe_dump_all(profiles), GROUP)
        assert (found.findings, found.profiles) == ((), len(profiles))
        told = [note for note in found.notes if words and words in note]
        assert len(told) == (words is not None)
        rest = [note for note in found.notes if "not among the files" not in note]
        assert words is not None or rest == []


class TestProviderConfigs:
    def test_a_mistake_has_its_line_in_the_file(self) -> None:
        assert said(CONFIG.replace("skipTaint", "skiptaint"), TEMPLATES) == [
            "f0.yaml:11: nodes.skiptaint: there is no such key; did you mean skipTaint?"
        ]

    def test_broken_yaml_inside(self) -> None:
        assert said(CONFIG.replace("fromNodeLabelKey: pool", "\tx"), TEMPLATES) == [
            "f0.yaml:9: key config: is not YAML: a tab stands where YAML wants spaces; replace it"
        ]
        assert said(CONFIG, TEMPLATES.replace("name: m5", "name: m5\n      name: m5")) == [
            "f1.yaml:10: key templates: metadata: the key 'name' stands here twice; remove one"
        ]

    def test_a_bare_config_and_plain_nodes(self) -> None:
        text = "".join(f"{line[4:]}\n" for line in CONFIG.splitlines()[5:])
        (row,) = report(text, NODE).rows
        assert (row.value, row.cpu) == ("Big_Pool", "8")
        assert said(text.replace("skipTaint: true", "skipTaint: 1"), NODE) == [
            "f0.yaml:6: nodes.skipTaint: 1 must be true or false, without quotes"
        ]

    def test_problems_of_templates_are_reported_at_the_templates(self) -> None:
        assert said(CONFIG, TEMPLATES.replace("pool:", "pol:")) == [
            "f1.yaml: ConfigMap/templates: ConfigMap templates, key templates: none of its 1 Nodes"
            " has the label pool; there are pol; add it, or choose another"
            " nodegroups.fromNodeLabelKey"
        ]

    def test_what_is_no_node_is_named(self) -> None:
        pod = "    ---\n    {apiVersion: v1, kind: Pod, metadata: {name: p}}\n"
        assert said(CONFIG, TEMPLATES + pod) == [
            "f1.yaml:5: ConfigMap templates, key templates: is left out, as it is no Node: Pod p"
        ]

    def test_templates_without_the_key(self) -> None:
        (sentence,) = said(CONFIG, TEMPLATES.replace("  templates: |", "  nodes: |"))
        assert "has no key config or templates, it has nodes; put the Nodes there" in sentence

    def test_templates_that_are_not_there(self) -> None:
        found = report(CONFIG)
        assert found.findings == ()
        assert "ConfigMap templates is not among the files" in found.notes[0]

    @pytest.mark.parametrize("source", ["cluster", "both"])
    def test_live_nodes_are_not_known(self, source: str) -> None:
        text = CONFIG.replace("readNodesFrom: configmap", f"readNodesFrom: {source}")
        found = report(text, TEMPLATES.replace("status: {capacity: {cpu: 8, memory: 32Gi}}", ""))
        assert found.findings == ()
        assert any("can't be known without a cluster" in note for note in found.notes)

    def test_a_group_of_the_same_name(self) -> None:
        text = GROUP.replace("batch", "m5")
        (sentence,) = said(CONFIG, TEMPLATES.replace("Big_Pool", "m5"), text)
        assert "group m5 (value 'm5') is also a KwokNodeGroup in f2.yaml" in sentence

    def test_data_that_is_no_text(self) -> None:
        text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  config: {a: b}\n"
        assert said(text) == ["f0.yaml:5: data.config: must be text; write a | after the colon"]


def test_a_key_that_stands_twice_hides_nothing_else() -> None:
    text = "\n".join(
        [
            "apiVersion: kwok-operator.io/v1alpha1",
            "kind: KwokNodeGroup",
            "metadata: {name: a, name: b}",
            "spec: {targetSize: -1}",
            "---",
            "apiVersion: v1",
            "kind: ConfigMap",
            "metadata: {name: kwok-provider-config}",
            "data:",
            "  config: |",
            "    apiVersion: v1alpha1",
            "    readNodesFrom: cluster",
            "    readNodesFrom: cluster",
            "    nodegroups: {fromNodeLabel: x}",
        ]
    )
    assert [each.line for each in validate([("f.yaml", text)]).findings] == [3, 4, 13, 14]


def test_plain_nodes_are_checked_alone() -> None:
    assert said(NODE) == []
    (sentence,) = said(NODE.replace("cpu: 8", "cpu: 8 cores"))
    assert "Node m5.status.capacity.cpu: '8 cores' is not a quantity" in sentence


def test_a_configmap_without_a_reference_may_have_nodes() -> None:
    (sentence,) = said(TEMPLATES.replace("cpu: 8", "cpu: 8 cores"))
    assert "'8 cores' is not a quantity" in sentence


@pytest.mark.parametrize("kind", ["group", "configmap", "node"])
def test_what_kwok_says_of_a_node_is_not_copied_and_noted_once(kind: str) -> None:
    status = "status: {conditions: [{type: Ready}], phase: Running, nodeInfo: {kubeletVersion: v1}}"
    plain, telling = {
        "group": (GROUP, f"{GROUP}    node: {{{status}}}\n"),
        "configmap": (TEMPLATES, TEMPLATES.replace("status: {", f"{status[:-1]}, ")),
        "node": (NODE, 3 * f"{NODE.replace('status: {', f'{status[:-1]}, ')}---\n"),
    }[kind]
    assert not any("not copied" in note for note in report(plain).notes)
    (note,) = [note for note in report(telling).notes if "not copied" in note]
    assert "status.conditions, status.phase, status.nodeInfo.kubeletVersion;" in note
    assert not report(telling).findings


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "f0.yaml:2: is not YAML: did not find expected node content"),
        ("x", "f0.yaml:1: is no object of keys and values"),
        ("spec: {}", "f0.yaml:1: is no object: it has no kind; a group has apiVersion"),
        ("\nkind: Node", "f0.yaml:2: is no object: it has no apiVersion; write v1"),
    ],
)
def test_what_is_no_object(text: str, sentence: str) -> None:
    (found,) = said(text)
    assert found.startswith(sentence)


def test_the_example_of_the_documentation() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = (docs / "provider-config.md").read_text(encoding="utf-8")
    found = report(page.split("```yaml\n")[1].split("```")[0])
    assert (found.findings, found.notes) == ((), ())
    for line in table(found.rows):
        assert f"    {line}\n" in page


words = st.sampled_from(
    "apiVersion kind metadata name spec data config templates items v1 v1alpha1 List ConfigMap Node"
    " KwokNodeGroup kwok-operator.io/v1alpha1 readNodesFrom nodegroups status labels".split()
)
values = st.recursive(
    st.none() | st.integers() | words | st.sampled_from([CONFIG, NODE]) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=15,
)


@given(
    texts=st.lists(st.sampled_from([CONFIG, TEMPLATES, NODE, GROUP]) | values.map(yaml.safe_dump))
)
@settings(deadline=None, max_examples=200)
def test_nothing_in_a_file_makes_it_fail(texts: list[str]) -> None:
    for sentence in said(*texts):
        assert sentence.startswith("f")
        assert "\n" not in sentence
