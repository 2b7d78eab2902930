"""A scenario's own form: what its file may say, and how a mistake is told."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.rehearsal.judge.recording import RecordingHeader, encode
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.scenariofile import MAX_BYTES, read_scenario
from tests.fakes.rehearsed import reader
from tests.fakes.scenarios import RUNNING, WEB, fields, read, scenario

WHOLE = scenario(
    teaches="all of it",
    seed=7,
    cluster={"kubernetes": "1.36", "flags": {"kube-scheduler": {"v": 2}}},
    apply=["groups.yaml", {"object": {"apiVersion": "v1", "kind": "Namespace"}}],
    processes=[
        {"name": "ca", "clusterAutoscaler": {"values": "production", "flags": {"v": 4}}},
        {
            "name": "mine",
            "command": ["./bin/it", "--kubeconfig=$(KUBECONFIG)"],
            "env": {"A": True},
            "ready": {"http": "http://127.0.0.1:1/readyz", "within": "30s"},
            "ends": "may",
        },
        {
            "name": "karpenter",
            "karpenter": {
                "crds": "crds",
                "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": 2}]},
                "featureGates": {"NodeOverlay": True},
                "nodeClass": {"registrationDelay": "40s"},
                "nodePools": "groups",
            },
        },
    ],
    timeline=[
        {"at": "30s", "scale": {"what": "deployment/web", "replicas": 9}},
        {"after": RUNNING, "delay": "1m", "outage": {"group": "a", "for": "90s"}},
    ],
    until={"settledFor": "500ms", "atMost": "1h30m"},
    expect=[
        {"figure": "pendingSeconds.p95", "of": {"workload": "web"}, "atMost": "30s"},
        {"event": {"reason": "A", "from": "b"}, "atMost": 0, "when": "always"},
        {"figure": "nodes.total", "equals": 3, "when": {"at": "2m"}},
        {"wait": "kng/a --for=create", "within": "5s"},
    ],
)


def good(value: Any) -> Scenario:
    found = read(value)
    assert found.findings == ()
    assert found.scenario is not None
    return found.scenario


def test_times_are_seconds() -> None:
    whole = good(WHOLE)
    assert (whole.until.settled, whole.until.at_most) == (0.5, 5400.0)
    assert [step.at for step in whole.timeline] == [30.0, None]
    assert whole.timeline[1].outage is not None
    assert (whole.timeline[1].delay, whole.timeline[1].outage.span) == (60.0, 90.0)
    assert whole.processes[1].env == {"A": "true"}
    assert whole.draws_from == "7"


def test_what_was_read_is_read_again() -> None:
    whole = good(WHOLE)
    assert Scenario.model_validate(whole.dump()) == whole


def test_a_recording_s_header_can_be_judged() -> None:
    header = RecordingHeader(expect=good(WHOLE).expect)
    found = reader(f"{encode(header)}\n".encode()).header.expect
    assert found == header.expect
    assert [each.kind for each in found] == ["figure", "event", "figure", "wait"]
    assert (found[0].bounds, found[2].at, found[3].within) == ({"atMost": 30.0}, 120.0, 5.0)


@pytest.mark.parametrize(
    ("until", "settled"),
    [
        (None, 10.0),
        ({"settledFor": "3s"}, 3.0),
        ({"atMost": "3m"}, None),
        ({"condition": RUNNING}, None),
    ],
)
def test_what_ends_it(until: Any, settled: float | None) -> None:
    assert good(scenario(until=until)).until.settled == settled


@pytest.mark.parametrize(
    ("file", "name"),
    [("a/Spot storm_2.yaml", "spot-storm-2"), ("-", "scenario"), ("x" * 90 + ".yml", "x" * 50)],
)
def test_it_is_called_as_its_file(file: str, name: str) -> None:
    found = read_scenario(file, yaml.safe_dump(scenario()))
    assert found.scenario is not None and found.scenario.name == name


def ready(**how: str) -> dict[str, Any]:
    return {"name": "x", "command": ["a"], "ready": how}


def share(bound: object, figure: str = "utilisation.cpu") -> dict[str, Any]:
    return {"figure": figure, "atMost": bound}


@pytest.mark.parametrize(
    ("part", "value", "field", "said"),
    [
        ("aply", [], "aply", "did you mean apply"),
        ("seed", {}, "seed", "is no text"),
        ("cluster", {"kubernetes": 1.3}, "cluster.kubernetes", "1.3 is no text"),
        ("cluster", {"flags": {"scheduler": {}}}, "cluster.flags.scheduler", "kube-scheduler?"),
        ("workloads", {}, "workloads", "is no list"),
        (
            "workloads",
            [5],
            "workloads[0]",
            "5 is no object; write its fields below it, such as name",
        ),
        ("workloads", [None], "workloads[0]", "is empty; write its fields below it"),
        ("seed", "", "seed", "at least one character"),
        ("cluster", {"flags": {"etcd": {"v": None}}}, "cluster.flags.etcd.v", "is empty; give it"),
        ("arms", {"a": {}}, "arms", "must have 2 to 8 names, and has 1"),
        ("timeline", [{"at": "3s", "apply": []}], "timeline[0].apply", "is empty"),
        ("workloads", [WEB | {"cont": 5}], "workloads[0].cont", "did you mean count?"),
        ("workloads", [WEB | {"count": True}], "workloads[0].count", "is no whole number"),
        ("workloads", [WEB | {"count": 10**15}], "workloads[0].count", "150,000 or less"),
        ("workloads", [WEB | {"count": 0}], "workloads[0].count", "1 or more"),
        ("workloads", [WEB | {"name": "Web_"}], "workloads[0].name", "lower-case"),
        ("workloads", [WEB | {"kind": "Jobb"}], "workloads[0].kind", "did you mean Job?"),
        ("workloads", [WEB | {"pods": None}], "workloads[0]", "has no pods"),
        ("workloads", [WEB | {"each": 3}], "workloads[0]", "make count a multiple of each"),
        ("workloads", [WEB | {"kind": "Pods", "each": 2}], "workloads[0]", "take it out"),
        ("workloads", [WEB | {"pods": {"cpu": "1x"}}], "workloads[0].pods.cpu", "a quantity"),
        (
            "workloads",
            [WEB | {"pods": {"cpu": 1, "template": {}}}],
            "workloads[0].pods",
            "into the template",
        ),
        (
            "workloads",
            [WEB | {"arrivals": {"rate": "5/d"}}],
            "workloads[0].arrivals.rate",
            "'5/d' is not a rate such as 5/s",
        ),
        (
            "workloads",
            [WEB | {"arrivals": {"rate": 5, "wave": {"size": 1, "every": "1s"}}}],
            "workloads[0].arrivals",
            "keep one of them",
        ),
        (
            "workloads",
            [WEB | {"arrivals": {"trace": "day.jsonl"}}],
            "workloads[0]",
            "count and a trace",
        ),
        ("workloads", [WEB | {"arrivals": {"speed": 2}}], "workloads[0].arrivals", "for trace"),
        ("processes", [{"name": "x"}], "processes[0]", "needs one of clusterAutoscaler"),
        ("processes", [{"name": "x", "command": []}], "processes[0].command", "is empty"),
        (
            "processes",
            [{"name": "x", "command": ["a"], "ready": {"http": "a", "tcp": "b"}}],
            "processes[0].ready",
            "keep one",
        ),
        ("processes", [ready(http="a.example")], "processes[0].ready", "is no URL"),
        ("processes", [ready(http="http://a:99999/")], "processes[0].ready", "is no URL"),
        ("processes", [ready(http="http://[::1/")], "processes[0].ready", "is no URL"),
        ("processes", [ready(tcp="80")], "processes[0].ready", "host and port"),
        ("processes", [ready(tcp="a:99999")], "processes[0].ready", "host and port"),
        ("processes", [ready(says="(")], "processes[0].ready: says '('", "unclosed group"),
        ("processes", [ready(says="(?=up)")], "processes[0].ready: says", "look-around"),
        ("processes", [ready(says=r"(a)\1")], "processes[0].ready: says", "backreferences"),
        ("processes", [ready(says=r"(\w{99}){99}")], "processes[0].ready: says", "exceeds"),
        (
            "workloads",
            [WEB | {"pods": {"template": {"spec": {"containers": []}}}}],
            "workloads[0].pods",
            "has no containers",
        ),
        ("timeline", [{"at": "3s"}], "timeline[0]", "needs one of apply"),
        ("timeline", [{"lose": {"selector": "a in b"}}], "timeline[0].lose.selector", "pool=spot"),
        ("timeline", [{"lose": {"group": "a", "share": 2}}], "timeline[0].lose.share", "1.0 or"),
        (
            "timeline",
            [{"interrupt": {"group": "a", "share": 0.1, "count": 2}}],
            "timeline[0].interrupt",
            "count and share",
        ),
        ("timeline", [{"at": "3 s", "stop": "x"}], "timeline[0].at", "'3 s' is not a time"),
        ("timeline", [{"at": "-3s", "stop": "x"}], "timeline[0].at", "is not a time"),
        ("timeline", [{"at": "90000h", "stop": "x"}], "timeline[0].at", "is not a time"),
        ("timeline", [{"at": "9000h", "stop": "x"}], "timeline[0].at", "longer than 7 days"),
        ("timeline", [{"at": "3s", "stop": "x", "delay": "1s"}], "timeline[0]", "add it to at"),
        ("timeline", [{"at": "3s", "after": RUNNING, "stop": "x"}], "timeline[0]", "at and after"),
        ("timeline", [{"at": "3s", "stop": "x", "settledFor": "1s"}], "timeline[0]", "at or after"),
        (
            "timeline",
            [{"run": {"command": ["x"], "prints": "("}}],
            "timeline[0].run: prints '('",
            "unclosed group",
        ),
        (
            "timeline",
            [{"at": "3s", "scale": {"what": "web", "replicas": 1}}],
            "timeline[0].scale.what",
            "KIND/NAME",
        ),
        ("until", {"settledFor": "0s"}, "until.settledFor", "is no time at all"),
        ("until", {"settledFor": "1s", "condition": RUNNING}, "until", "keep one of them"),
        ("expect", [], "expect", "is empty"),
        ("expect", [{"figure": "pods.running"}], "expect[0]", "has no bound"),
        ("expect", [RUNNING | {"atMost": 0}], "expect[0]", "can never hold"),
        ("expect", [RUNNING | {"equals": 0}], "expect[0]", "beside another bound"),
        ("expect", [RUNNING | {"wait": "a"}], "expect[0]", "has figure and wait"),
        ("expect", [RUNNING | {"atLeast": "one"}], "expect[0].atLeast", "a whole number such as 3"),
        ("expect", [share("50%")], "expect[0].atMost", "'50%' is not a share from 0 to 1"),
        ("expect", [share("1e400")], "expect[0].atMost", "is too large a number"),
        ("expect", [share(True, "cost")], "expect[0].atMost", "True is not a number from 0 on"),
        ("expect", [share("", "startSeconds.max")], "expect[0].atMost", "is not a time such as"),
        (
            "expect",
            [share("x", "cots")],
            "expect[0].atMost",
            "neither a number from 0 on nor a time",
        ),
        ("expect", [{"event": {"reason": "A"}, "equals": -1}], "expect[0].equals", "whole number"),
        ("expect", [RUNNING | {"when": "never"}], "expect[0].when", "neither end, nor always"),
        ("expect", [RUNNING | {"when": {"att": 1}}], "expect[0].when", ""),
        ("expect", [{"event": {}, "atMost": 0}], "expect[0].event", "says of no event which"),
        ("expect", [{"wait": "a", "when": "always"}], "expect[0]", "asks at one moment"),
    ],
)
def test_a_mistake_is_reported(part: str, value: Any, field: str, said: str) -> None:
    found = read(scenario() | {part: value})
    assert found.scenario is None
    about = [each for each in found.findings if each.message.startswith(field)]
    assert about, [str(each) for each in found.findings]
    assert any(said in each.message for each in about), [str(each) for each in about]


def test_a_mistake_in_when_is_one_line() -> None:
    (found,) = read(scenario(expect=[RUNNING | {"when": {"at": "later"}}])).findings
    assert found.message.startswith("expect[0].when.at: 'later' is not a time")


def test_a_line_is_that_of_the_field() -> None:
    text = "expect:\n- figure: pods.running\n  atLeast: x\napply:\n- ok.yaml\n- 5\n"
    found = read_scenario("a.yaml", text)
    assert [(each.file, each.line) for each in found.findings] == [("a.yaml", 6), ("a.yaml", 3)]


def test_all_mistakes_are_reported_at_once() -> None:
    found = read({"apply": 5, "workloads": [{"name": 4}], "until": 3})
    assert fields(found.findings) == [
        "apply",
        "workloads[0].name",
        "until",
        "expect",
    ]


def test_of_very_many_mistakes_the_first_are_reported() -> None:
    found = read(scenario(workloads=[{"name": n} for n in range(400)]))
    assert len(found.findings) == 51
    assert "mistakes more" in found.findings[-1].message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a: [", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "has 2 documents"),
        ("- a", "is no object of keys and values"),
        ("apiVersion: v1\nkind: Pod\n", "name it in apply of a scenario"),
        (f"a: {'x' * MAX_BYTES}", "has more than"),
        ("&a [*a]", "refers to itself"),
        ("a: " * 3, ""),
        ("[" * 5000, "levels deep"),
    ],
)
def test_no_scenario_at_all(text: str, said: str) -> None:
    found = read_scenario("a.yaml", text)
    assert found.scenario is None
    assert said in found.findings[0].message


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(
    "name kind count each pods arrivals at after rate wave trace apply object path processes"
    " clusterAutoscaler karpenter nodePools disruption budgets command ready workloads timeline"
    " scale what until expect figure of when event wait cluster flags template".split()
)
SHAPED = st.recursive(
    ANYTHING,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(sorted(Scenario.model_fields)), SHAPED)
def test_whatever_stands_there_is_reported(part: str, value: Any) -> None:
    whole = scenario() | {part: value}
    found = read_scenario("a.yaml", yaml.safe_dump(whole))
    assert (found.scenario is None) == bool(found.findings)
    assert all("\n" not in str(each) and len(str(each)) < 2_000 for each in found.findings)
