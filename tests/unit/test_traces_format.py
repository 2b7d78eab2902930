"""Lines of a trace: what is written can be read, and what can't be replayed is refused by name."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import TraceError
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.traces.trace import (
    Event,
    Gap,
    Happening,
    Header,
    Key,
    Line,
    Stop,
    TracedShape,
    decode,
    encode,
)

LINES: list[Line] = [
    Header(start=1_767_323_045_123, part=3, at=9.5, cluster="0123456789ab"),
    TracedShape("abc", {"spec": {"containers": []}}),
    Event(1.25, Happening.PRESENT, Key("PriorityClass", "", "high"), "abc"),
    Event(1.25, Happening.CREATE, Key("Pod", "shop", "w-1"), "abc", None, "w-"),
    Event(2, Happening.UPDATE, Key("Deployment", "shop", "cart"), "abc", 0, late=True),
    Event(3, Happening.SCALE, Key("Deployment", "shop", "cart"), replicas=7),
    Event(4, Happening.END, Key("Job", "shop", "once"), phase="Failed", duration=0.0),
    Event(5, Happening.DELETE, Key("Job", "shop", "once")),
    Gap(9.0, 3.5, "Pod", True),
    Stop(10.0),
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: type(line).__name__)
def test_what_is_written_can_be_read(line: Line) -> None:
    text = encode(line)
    assert "\n" not in text
    assert decode(text, where="here") == line


CREATE = {"line": "create", "at": 1, "kind": "Pod", "namespace": "a", "name": "b", "shape": "c"}
HEADER = {"line": "header", "version": 1, "start": "2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({**CREATE, "line": 7}, "line"),
        ({**CREATE, "at": "1"}, "at"),
        ({**CREATE, "at": True}, "at"),
        ({**CREATE, "at": -1}, "at"),
        ({**CREATE, "at": float("nan")}, "at"),
        ({**CREATE, "at": 10**400}, "at"),
        ({**CREATE, "kind": "Secret"}, "kind"),
        ({**CREATE, "namespace": ""}, "namespace"),
        ({**CREATE, "namespace": "a/b"}, "namespace"),
        ({**CREATE, "name": "../../secrets/x"}, "name"),
        ({**CREATE, "name": "b?dryRun=All"}, "name"),
        ({**CREATE, "name": "b\n"}, "name"),
        ({**CREATE, "name": ["b"]}, "name"),
        ({**CREATE, "prefix": "../"}, "prefix"),
        ({**CREATE, "shape": None}, "shape"),
        ({**CREATE, "replicas": -1}, "replicas"),
        ({**CREATE, "replicas": 2**31}, "replicas"),
        ({**CREATE, "replicas": True}, "replicas"),
        ({**CREATE, "duration": "long"}, "duration"),
        ({**CREATE, "late": "yes"}, "late"),
        ({**CREATE, "line": "scale"}, "replicas"),
        ({**CREATE, "line": "end"}, "phase"),
        ({**CREATE, "line": "end", "kind": "Deployment", "phase": "Failed"}, "kind"),
        ({**HEADER, "version": 2}, "version"),
        ({**HEADER, "version": "1"}, "version"),
        ({**HEADER, "start": "yesterday"}, "start"),
        ({**HEADER, "start": "2026-01-02T03:04:05"}, "start"),
        ({**HEADER, "at": -5}, "at"),
        ({"line": "shape", "id": "a", "body": []}, "body"),
        ({"line": "shape", "id": "", "body": {}}, "id"),
        ({"line": "gap", "at": 1, "since": {}, "kind": "Pod"}, "since"),
        ({"line": "stop"}, "at"),
        ([CREATE], "the line"),
    ],
)
def test_hostile_lines_are_refused_by_name(line: Any, field: str) -> None:
    with pytest.raises(TraceError) as caught:
        decode(json.dumps(line), where="trace.jsonl:12")
    error = caught.value
    assert (error.where, error.field) == ("trace.jsonl:12", field)
    assert error.problem and error.remedy
    assert str(error).startswith(f"trace.jsonl:12: {field}:")
    assert len(str(error).splitlines()) == 1


def test_the_sentence_of_a_refusal() -> None:
    with pytest.raises(TraceError) as caught:
        decode(json.dumps({**CREATE, "at": -1}), where="trace.jsonl:12")
    assert str(caught.value) == (
        "trace.jsonl:12: at: -1 is no time of a trace; give seconds since the start, from 0"
    )


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"line": "create"', "\x00", "nul"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(TraceError) as caught:
        decode(text, where="here")
    assert len(str(caught.value)) < 1_000


def test_what_later_versions_may_bring_is_left_alone() -> None:
    assert decode('{"line": "weather", "at": 1, "sky": "blue"}', where="here") is None
    assert decode(json.dumps({**CREATE, "mood": "good"}), where="here") is not None


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted({key for line in LINES for key in json.loads(encode(line))})


@given(st.dictionaries(st.sampled_from(KEYS), ANY), st.sampled_from([*Happening, "header", "gap"]))
def test_any_line_is_read_or_refused(line: dict[str, Any], kind: str) -> None:
    try:
        found = decode(json.dumps({**line, "line": kind}), where="here")
    except TraceError as error:
        assert error.field in KEYS
    else:
        assert found is not None


def test_paths_of_kinds() -> None:
    pod, deployment, high = TRACED["Pod"], TRACED["Deployment"], TRACED["PriorityClass"]
    assert (pod.api_version, pod.collection("a")) == ("v1", "/api/v1/namespaces/a/pods")
    assert deployment.api_version == "apps/v1"
    assert deployment.collection("a") == "/apis/apps/v1/namespaces/a/deployments"
    assert high.collection("") == "/apis/scheduling.k8s.io/v1/priorityclasses"
