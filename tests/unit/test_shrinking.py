"""Shrinking a scenario, with runs that are only computed."""

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cli.main import main
from kwok_operator.errors import SettingsError
from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.rehearsal.scenario.applied import layouts_of
from kwok_operator.rehearsal.scenario.expectation import Expectation
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.shrinking.documents import in_yaml, read_again
from kwok_operator.rehearsal.shrinking.hiding import hidden, still_readable
from kwok_operator.rehearsal.shrinking.keeps import expectations
from kwok_operator.rehearsal.shrinking.parts import Doc, Part, applied, at, tidied, without
from kwok_operator.rehearsal.shrinking.pytestfile import pytest_file
from kwok_operator.rehearsal.shrinking.shrink import ShrinkSettings, hashes_of_files
from kwok_operator.rehearsal.shrinking.shrinker import (
    MOST_TRIES,
    ShrinkBudget,
    Shrinker,
    ShrinkError,
)
from kwok_operator.rehearsal.shrinking.symptom import Symptom
from kwok_operator.rehearsal.shrinking.tries import TRIES, Tries, key_of, make_ready

FAILS = Symptom(outcomes=("fails, too high",), reasons=(frozenset({frozenset({"anti-affinity"})}),))
HOLDS = Symptom(outcomes=("holds",), reasons=(frozenset(),))
OTHERWISE = Symptom(
    outcomes=("fails, too high",), reasons=(frozenset({frozenset({"Insufficient"})}),)
)
PENDING = {"figure": "pods.pending", "equals": 0}
WIDE = ShrinkBudget(runs=10_000, seconds=1e9)


def deployment(name: str, *, replicas: int | None = 10, **spec: Any) -> Doc:
    labels = {"app": name}
    container = {"name": "c0", "image": "fake", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 9, **spec},
            },
        },
    }


def group(name: str, size: int) -> Doc:
    return {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": "KwokNodeGroup",
        "metadata": {"name": name},
        "spec": {"targetSize": size, "template": {"shape": {"cpu": 4}}},
    }


def scenario(*objects: Doc, **fields: Any) -> Doc:
    made = [{"object": each} for each in objects]
    return {"name": "it", "apply": made, "expect": [PENDING], **fields}


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "planted"}}}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
NOISY = scenario(
    NAMESPACE,
    *(deployment(f"noise-{n}") for n in range(9)),
    deployment("planted", affinity=APART, tolerations=[{"operator": "Exists"}]),
    *(group(name, 7) for name in "abcde"),
    timeline=[
        {"at": 1, "scale": {"what": "deployment/noise-1", "namespace": "shop", "replicas": 2}}
    ],
    placement={
        "pods": [
            {"what": "deployment/planted", "namespace": "shop", "on": {"a/0": 2, "c/6": 3}},
            {"what": "deployment/noise-3", "namespace": "shop", "on": {"b/1": 4}},
        ]
    },
)


def named(doc: Doc) -> dict[str, Doc]:
    return {made["metadata"]["name"]: made for _, made in applied(doc)}


def planted(doc: Doc) -> Symptom:
    """Pods that must be apart, and more of them than there are nodes in the group c."""
    there = named(doc)
    if "planted" not in there or "c" not in there:
        return HOLDS if "planted" not in there else OTHERWISE
    spec = there["planted"]["spec"]
    apart = at(spec, ("template", "spec", "affinity", "podAntiAffinity"))
    few = there["c"]["spec"]["targetSize"] < 2
    return (
        FAILS if apart == APART["podAntiAffinity"] and spec["replicas"] > 3 and not few else HOLDS
    )


class Runs:
    """Counts runs, and computes each from its document."""

    def __init__(self, outcome: Callable[[Doc], Symptom], *, ends_after: int | None = None) -> None:
        self.outcome = outcome
        self.of = Counter[tuple[str, bool]]()
        self.ends_after = ends_after

    async def play(self, doc: Doc, quiet: float | None) -> Symptom:
        if self.of.total() == self.ends_after:
            raise KeyboardInterrupt
        self.of[key_of(doc), quiet is None] += 1
        return self.outcome(doc)


def shrinker(
    runs: Runs, folder: Path, *, doc: Doc = NOISY, budget: ShrinkBudget = WIDE, reason: str = ""
) -> Shrinker:
    tries = Tries(folder, {"scenario": key_of(doc)})
    lines: list[str] = []
    return Shrinker(
        doc,
        runs.play,
        lambda doc: True,
        tries,
        budget,
        lines.append,
        lambda doc: None,
        reason=reason,
    )


async def test_what_was_planted_is_left_and_nothing_else(tmp_path: Path) -> None:
    runs = Runs(planted)
    found = shrinker(runs, tmp_path)
    assert await found.shrink()
    left = named(found.smallest)
    assert left.keys() == {"shop", "planted", "c"}
    assert left["planted"]["spec"]["replicas"] == 4
    assert left["c"]["spec"]["targetSize"] == 2
    container = {"name": "c0", "image": "fake"}
    template = left["planted"]["spec"]["template"]["spec"]
    assert template == {"containers": [container], "affinity": APART}
    assert found.smallest.keys() == {"name", "apply", "expect"}
    assert found.runs == runs.of.total() <= 60


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 60))
async def test_no_more_runs_are_made_than_the_budget_allows(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Runs(planted)
        found = shrinker(made, Path(folder), budget=ShrinkBudget(runs, 1e9))
        try:
            whole = await found.shrink()
        except ShrinkError:
            assert runs < 2
            return
        assert made.of.total() <= runs
        assert planted(found.smallest) == FAILS
        assert whole or made.of.total() == runs


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 60), st.integers(0, 40))
async def test_a_shrinking_that_was_killed_goes_on_where_it_was(at_run: int, torn: int) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        undisturbed = Runs(planted)
        whole = shrinker(undisturbed, Path(other))
        await whole.shrink()
        first, then = Runs(planted, ends_after=at_run), Runs(planted)
        try:
            await shrinker(first, Path(folder)).shrink()
        except KeyboardInterrupt:
            with (Path(folder) / TRIES).open("a") as file:
                file.write('{"key": "half a line'[:torn])
        found = shrinker(then, Path(folder))
        await found.shrink()
        assert found.smallest == whole.smallest
        assert first.of + then.of == undisturbed.of


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
async def test_what_comes_out_differently_is_tried_three_times_at_most(random: Any) -> None:
    def sometimes(doc: Doc) -> Symptom:
        return planted(doc) if random.random() < 0.8 else HOLDS

    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(sometimes)
        found = shrinker(runs, Path(folder))
        try:
            await found.shrink()
        except ShrinkError:
            return
        once_more = 1  # what is left is played to its end after each round
        assert max(runs.of.values()) <= 2 * MOST_TRIES + once_more
        if found.by_majority and found.first == FAILS:
            assert planted(found.smallest) == FAILS


async def test_what_shows_only_late_is_found_at_the_end_and_tried_with_patience(
    tmp_path: Path,
) -> None:
    """A run that ends early doesn't show that the group b is needed."""

    class Late(Runs):
        async def play(self, doc: Doc, quiet: float | None) -> Symptom:
            found = await super().play(doc, quiet)
            return HOLDS if quiet is None and "b" not in named(doc) else found

    found = shrinker(Late(planted), tmp_path)
    assert await found.shrink()
    assert named(found.smallest).keys() == {"shop", "planted", "b", "c"}


async def test_a_scenario_that_shows_it_only_late_is_shrunk_with_patience(tmp_path: Path) -> None:
    class Slow(Runs):
        async def play(self, doc: Doc, quiet: float | None) -> Symptom:
            found = await super().play(doc, quiet)
            return found if quiet is None else HOLDS

    found = shrinker(Slow(planted), tmp_path)
    assert await found.shrink()
    assert named(found.smallest).keys() == {"shop", "planted", "c"} and not found.by_majority


async def test_an_early_run_that_dies_by_chance_is_played_again(tmp_path: Path) -> None:
    class Dies(Runs):
        async def play(self, doc: Doc, quiet: float | None) -> Symptom:
            found = await super().play(doc, quiet)
            first = quiet is not None and self.of.total() == 2
            return Symptom("autoscaler has ended") if first else found

    found = shrinker(Dies(planted), tmp_path)
    assert await found.shrink()
    assert not found.patient and not found.by_majority


async def test_a_reason_can_be_chosen(tmp_path: Path) -> None:
    both = Symptom(outcomes=FAILS.outcomes, reasons=(FAILS.reasons[0] | OTHERWISE.reasons[0],))

    def of_either(doc: Doc) -> Symptom:
        there = {"planted", "noise-2"} & named(doc).keys()
        return {2: both, 0: HOLDS}.get(len(there)) or (FAILS if "planted" in there else OTHERWISE)

    found = shrinker(Runs(of_either), tmp_path, reason="insufficient")
    await found.shrink()
    assert named(found.smallest).keys() == {"shop", "noise-2"}
    with pytest.raises(ShrinkError, match="taint"):
        await shrinker(Runs(of_either), tmp_path / "other", reason="taint").shrink()


def test_the_budget_is_that_of_the_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[ShrinkBudget] = []

    async def fake(_: object, wanted: ShrinkSettings, **__: object) -> None:
        budgets.append(wanted.budget)
        raise ShrinkError("enough")

    monkeypatch.setattr("kwok_operator.rehearsal.shrinking.shrink.shrink", fake)
    path = tmp_path / "scenario.yaml"
    path.write_text(in_yaml({"name": "s", "until": {"atMost": "1s"}, "expect": [PENDING]}))
    flags = [f"--output={tmp_path / 'out'}", "--runs=7", "--minutes=2"]
    assert main(["shrink", str(path), *flags]) == 1
    assert budgets == [ShrinkBudget(runs=7, seconds=120)]


def test_tries_of_something_else_are_refused(tmp_path: Path) -> None:
    Tries(tmp_path, {"scenario": "a"})
    Tries(tmp_path, {"scenario": "a"})
    with pytest.raises(SettingsError, match="--output"):
        Tries(tmp_path, {"scenario": "b"})
    (tmp_path / TRIES).write_text("7\n")
    with pytest.raises(SettingsError, match="--output"):
        Tries(tmp_path, {"scenario": "a"})
    assert (tmp_path / TRIES).read_text() == "7\n"


def test_tries_are_those_of_the_files_that_a_scenario_names(tmp_path: Path) -> None:
    files = ("trace.csv", "load.py", "step.sh", "types.json", "kueue.yaml")
    made = {
        "name": "it",
        "workloads": [{"name": "web", "arrivals": {"trace": files[0]}}],
        "processes": [
            {"name": "load", "command": ["python3", files[1], "--fast"]},
            {
                "name": "karpenter",
                "karpenter": {"nodePools": ["pools.yaml"], "instanceTypesFrom": files[3]},
            },
            {"name": "kueue", "kueue": {"configuration": files[4]}},
        ],
        "timeline": [{"at": "1s", "run": {"command": ["bash", files[2]]}}],
        "expect": [PENDING],
    }
    found = Scenario.model_validate(made)
    seen = [hashes_of_files(found, tmp_path)]
    for name in files * 2:
        with (tmp_path / name).open("a") as file:
            file.write("more\n")
        seen.append(hashes_of_files(found, tmp_path))
    assert seen[0] == {} and set(seen[-1]) == set(files)
    assert all(seen.count(each) == 1 for each in seen)


def test_a_line_that_is_no_try_ends_them(tmp_path: Path) -> None:
    tries = Tries(tmp_path, {})
    tries.add("a", FAILS, seconds=1)
    with (tmp_path / TRIES).open("a") as file:
        file.write('7\n{"key": "b"}\n')
    again = Tries(tmp_path, {})
    assert again.known("a") == FAILS and again.known("b") is None
    assert len((tmp_path / TRIES).read_text().splitlines()) == 2


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    make_ready(tmp_path)
    (tmp_path / ".gitignore").touch()
    make_ready(tmp_path)
    (tmp_path / "shrunk.yaml").touch()
    with pytest.raises(SettingsError, match="other files"):
        make_ready(tmp_path)
    (tmp_path / TRIES).touch()
    (tmp_path / ".shrunk.yaml.1.new").touch()
    make_ready(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {".gitignore", "shrunk.yaml", TRIES}


def test_steps_places_and_namespaces_go_with_what_they_are_about() -> None:
    gone = [n for n, (_, made) in enumerate(applied(NOISY)) if made["metadata"]["name"] != "c"]
    left = without(NOISY, [Part("most", tuple(("apply", n) for n in gone if n))])
    assert named(left).keys() == {"c"} and left.keys() == {"name", "apply", "expect"}
    fewer = without(NOISY, [Part("a", (("apply", 11),))])
    assert fewer["placement"]["pods"][0]["on"] == {"c/6": 3}
    assert fewer["timeline"] == NOISY["timeline"]


def test_places_of_later_ordinals_and_of_the_least_nodes_stay() -> None:
    base = deployment("db", replicas=2)
    db = {**base, "kind": "StatefulSet", "spec": {**base["spec"], "ordinals": {"start": 5}}}
    more = {**group("a", 1), "spec": {"targetSize": None, "autoscaling": {"minSize": 3}}}
    ordinals = {"5": "a/2", "6": "a/1"}
    placed = [{"what": "statefulset/db", "namespace": "shop", "ordinals": ordinals}]
    doc = scenario(NAMESPACE, db, more, placement={"pods": placed})
    assert tidied(doc) == doc
    assert tidied(scenario(NAMESPACE, deployment("a", replicas=None), placement={"pods": []}))


def test_more_objects_than_anyone_writes_are_one_document(tmp_path: Path) -> None:
    doc = scenario(NAMESPACE, group("a", 1), *(deployment(f"w-{n}") for n in range(1_100)))
    doc["expect"] = [{"figure": "nodes.max", "of": {"group": "a"}, "atLeast": 1}]
    read = read_again(doc, tmp_path / "it.yaml", binaries={})
    assert read.scenario is not None and not read.findings


def test_the_result_is_read_as_what_it_was(tmp_path: Path) -> None:
    odd = scenario(NAMESPACE, deployment("a", nodeSelector={"k": "12e5", "l": "no", "m": "1:20"}))
    path = tmp_path / "shrunk.yaml"
    path.write_text(in_yaml(odd))
    read = read_again(odd, path, binaries={})
    assert read.scenario is not None and not read.findings
    test = pytest_file(path.name, read, FAILS)
    compile(test, "test_shrunk.py", "exec")
    assert '("pods.pending: exactly 0, at the end", False)' in test


EXPECT = [Expectation.model_validate(each) for each in (PENDING, {**PENDING, "name": "mine"})]


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (["0"], [0]),
        (["mine"], [1]),
        (["at the end"], [0]),
        (["pods.pending"], [0, 1]),
        (["1", "{figure: pods.pending, equals: 0}", "mine"], [1, 0]),
    ],
)
def test_expectations_are_named_or_written(given: list[str], numbers: list[int]) -> None:
    raw = [PENDING, {"name": "mine"}]
    assert expectations(given, EXPECT, raw=raw) == [raw[number] for number in numbers]


@pytest.mark.parametrize("given", [[], ["none"], ["{figure: none}"], ["{"], ["7"]])
def test_an_expectation_that_is_not_there_is_refused(given: list[str]) -> None:
    with pytest.raises(SettingsError, match="--keeps"):
        expectations(given, EXPECT, raw=[PENDING, PENDING])


def test_no_name_is_left_in_a_hidden_document() -> None:
    canary = "acme-canary"
    doc = scenario(
        {**NAMESPACE, "metadata": {"name": canary}},
        deployment(canary, affinity=APART, nodeSelector={f"{canary}.example/a": canary}),
        group(canary, 2),
        {"kind": "ConfigMap", "metadata": {"name": canary}, "data": {canary: canary}},
        teaches=canary,
        workloads=[{"name": canary, "namespace": canary, "pods": {"labels": {canary: canary}}}],
        timeline=[
            {"scale": {"what": f"deployment/{canary}", "namespace": canary, "replicas": 2}},
            {"outage": {"group": canary}, "say": canary},
            {"cordon": {"selector": f"{canary}={canary}"}},
            {"patch": {"what": f"kng/{canary}", "patch": {"metadata": {"labels": {"a": canary}}}}},
            {"apply": [{"object": group(canary, 1)}]},
        ],
        placement={
            "pods": [{"what": f"deployment/{canary}", "on": {f"{canary}/0": 1}}],
            "nodes": {f"{canary}/0": {"taints": [{"key": canary, "effect": "NoSchedule"}]}},
        },
        processes=[
            {"name": canary, "clusterAutoscaler": {"flags": {"nodes": f"1:5:{canary}"}}},
        ],
        expect=[
            {"figure": "pods.pending", "of": {"workload": f"Deployment/{canary}/{canary}"}},
            {"figure": "nodes", "of": {"group": canary}, "name": canary, "equals": 0},
            {"event": {"about": [f"Pod/{canary}/{canary}-*"], "message": ["{" + canary + " 0->"]}},
            {"wait": f"deployment/{canary} --namespace={canary}"},
        ],
    )
    found = hidden(doc, Anonymizer(b"k" * 32))
    assert canary not in str(found)
    # What referred to the group still does.
    name = found["expect"][1]["of"]["group"]
    assert (
        name
        == found["timeline"][1]["outage"]["group"]
        == found["apply"][2]["object"]["metadata"]["name"]
    )
    assert f"{name}/0" in found["placement"]["nodes"]
    assert found["expect"][2]["event"]["about"] == [f"Pod/{name}/{name}-*"]
    assert found["expect"][2]["event"]["message"] == ["{" + name + " 0->"]
    with pytest.raises(SettingsError, match="command"):
        hidden(scenario(timeline=[{"run": {"command": ["a"]}}]), Anonymizer(b"k" * 32))


def test_selectors_select_the_same_in_a_hidden_document() -> None:
    selector = "acme/a in (b, c),acme/d notin (e),!acme/f,acme/g,acme/h!=i,acme/k = l"
    doc = scenario(
        timeline=[{"cordon": {"selector": selector}}],
        workloads=[{"name": "web", "labels": {"acme/a": "b"}}],
    )
    anonymizer = Anonymizer(b"k" * 32)
    found = hidden(doc, anonymizer)

    def key(name: str) -> str:
        return anonymizer.label_key(f"acme/{name}")

    b, c, e, i, last = map(anonymizer.hash, "bceil")
    assert found["workloads"][0]["labels"] == {key("a"): b}
    assert found["timeline"][0]["cordon"]["selector"] == (
        f"{key('a')} in ({b},{c}),{key('d')} notin ({e}),!{key('f')},{key('g')},"
        f"{key('h')}!={i},{key('k')}={last}"
    )


def test_what_may_still_have_names_in_a_hidden_document_is_listed() -> None:
    autoscaler = {"binary": "/home/ann/ca", "flags": {"cluster-name": "acme", "v": 4}}
    doc = scenario(
        group("web", 1),
        processes=[{"name": "ca", "clusterAutoscaler": autoscaler}],
        cluster={"flags": {"kube-scheduler": {"config": "/home/ann/s"}}},
        timeline=[{"outage": {"topology": {"values": ["acme-r1"]}}}],
        expect=[{"event": {"reason": "Failed", "message": ["web of acme"]}, "atLeast": 1}],
    )
    anonymizer = Anonymizer(b"k" * 32)
    assert {*still_readable(hidden(doc, anonymizer))} == {
        "processes[0].clusterAutoscaler.binary: /home/ann/ca",
        "processes[0].clusterAutoscaler.flags.cluster-name: acme",
        "cluster.flags.kube-scheduler.config: /home/ann/s",
        "timeline[0].outage.topology.values: acme-r1",
        f"expect[0].event.message: {anonymizer.name('web')} of acme",
    }


@pytest.mark.parametrize("domain", [None, "canary", "canary-7", "7"])
def test_racks_are_hidden_as_the_same_racks(domain: str | None) -> None:
    name, also, prefix = "canary-cart", "canary.io/also", domain or "canary-cart"
    racked = group(name, 2)
    levels = [{"label": "kueue/rack", "of": 2}, {"label": "canary.io/x", "also": [also], "of": 2}]
    topology = {"levels": levels} | ({"domain": domain} if domain else {})
    racked["spec"]["template"]["topology"] = topology
    racked["spec"]["cloud"] = {"unit": "canary.io/x", "outageUnits": [f"{prefix}-0-1"]}
    pods = {"cloud.provider.com/topology-rack": f"{prefix}-3", also: f"{prefix}-0-1"}
    found = hidden(
        scenario(
            racked,
            deployment("canary-web", nodeSelector=pods),
            timeline=[
                {"outage": {"topology": {"level": "kueue/rack"}}},
                {"outage": {"topology": {"values": [f"{prefix}-0-1"]}}},
                {"lose": {"selector": f"canary.io/x={prefix}-0-1"}},
            ],
        ),
        Anonymizer(b"k" * 32),
    )
    assert "canary" not in str(found)
    made, web = (each["object"] for each in found["apply"])
    (layout,) = layouts_of({made["metadata"]["name"]: made["spec"]}).values()
    first, second = (layer.labels[0] for layer in layout.layers)
    assert found["timeline"][0]["outage"]["topology"]["level"] == first
    (unit,) = found["timeline"][1]["outage"]["topology"]["values"]
    assert layout.unit(unit) == range(2, 4)
    assert made["spec"]["cloud"] == {"unit": second, "outageUnits": [unit]}
    assert found["timeline"][2]["lose"]["selector"] == f"{second}={unit}"
    wanted = web["spec"]["template"]["spec"]["nodeSelector"]
    assert {*wanted} == {first, layout.layers[1].labels[1]}
    assert wanted.items() <= {**layout.labels(2), first: wanted[first]}.items()
    assert layout.unit(wanted[first]) == range(12, 16)
