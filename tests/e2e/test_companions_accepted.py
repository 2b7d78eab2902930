"""Companions of nodes, held against a real API server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kwok_operator.companions.desired import CompanionOwner, compile_companions
from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.api.template import GpuProfile, Template
from kwok_operator.nodegroups.naming import longest_name
from tests.e2e.api import NODES, Refused
from tests.e2e.kubectl import Kubectl
from tests.e2e.own_cluster import own_cluster

DRY = "dryRun=All&fieldValidation=Strict"
GROUP = "a-group-with-a-name-that-is-long"
NODE = longest_name(GROUP)

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,56}[a-z0-9])?", fullmatch=True)
DNS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,9}[a-z0-9])?(\.[a-z]{1,9}){0,4}", fullmatch=True)
KEYS = st.builds(
    "{}{}".format,
    st.just("") | DNS.map(lambda name: f"{name}/"),
    st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,9}[A-Za-z0-9])?", fullmatch=True),
)
IDENTIFIERS = st.builds(
    "{}{}".format,
    st.just("")
    | DNS.map(lambda name: f"{name}/")
    | st.from_regex(r"[a-z][-.a-z]{1,4}/", fullmatch=True),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,31}", fullmatch=True),
)
TEXT = st.lists(
    st.text(st.characters(codec="utf-8"), max_size=40)
    | st.sampled_from(["{node}", "{index}", "{uid}"]),
    min_size=1,
    max_size=4,
).map("".join)
QUANTITIES = st.integers(0, 10**18) | st.from_regex(
    r"[0-9]{1,9}(\.[0-9]{1,9})?(m|k|Ki|Gi|E|Ei|e[0-9]|n)?", fullmatch=True
)
VALUES = QUANTITIES.map(lambda quantity: {"value": quantity})
VERSIONS = st.sampled_from(
    ["9.0.0", "1.2.3-rc.1+b.2", "12.4", "1.02.3", "v1.2.3", ""]
) | st.from_regex(r"(0|[1-9][0-9]?)\.(0|[1-9])\.0(-[a-z0-9]{1,3})?", fullmatch=True)
ATTRIBUTES = st.one_of(
    TEXT.map(lambda text: {"string": text}),
    st.integers(0, 1_000_000).map(lambda number: {"int": number}),
    st.booleans().map(lambda yes: {"bool": yes}),
    VERSIONS.map(lambda version: {"version": version}),
)
COUNTS = st.none() | st.integers(1, 140)
COUNTERS = st.dictionaries(
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
    VALUES,
    min_size=1,
    max_size=3,
)
TAINTS = st.fixed_dictionaries(
    {"key": KEYS, "effect": st.sampled_from(["NoSchedule", "NoExecute", "None"])},
    optional={
        "value": st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", fullmatch=True)
    },
)
DRIVERS = st.fixed_dictionaries(
    {"name": DNS},
    optional={
        "nodeID": TEXT,
        "topologyKeys": st.lists(KEYS, max_size=3),
        "allocatable": st.none() | st.integers(0, 1_000_000).map(lambda count: {"count": count}),
    },
)


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    """Devices of one driver; what they take of counters is there for the most part."""
    sets: list[dict[str, Any]] = [
        {"name": name, "count": draw(COUNTS), "counters": draw(COUNTERS)}
        for name in draw(st.lists(NAMES, max_size=2, unique=True))
    ]
    taken = [
        {"counterSet": f"{each['name']}{number}", "counters": each["counters"]}
        for each in sets
        for number in (("",) if each["count"] is None else ("-0", "-{index}"))
    ]
    takes = st.lists(st.sampled_from(taken), max_size=2) if taken else st.just([])
    device: dict[str, st.SearchStrategy[Any]] = {
        "count": st.none() | st.integers(1, 3) | (COUNTS if not taken else st.none()),
        "attributes": st.dictionaries(IDENTIFIERS, ATTRIBUTES, max_size=4),
        "capacity": st.dictionaries(IDENTIFIERS, VALUES, max_size=3),
        "consumesCounters": takes,
        "taints": st.lists(TAINTS, max_size=3),
    }
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    devices = [{"name": n, **draw(st.fixed_dictionaries({}, optional=device))} for n in names]
    scope = draw(st.sampled_from(["Node", "Shared"]))
    return {"driver": draw(DNS), "pool": scope, "devices": devices, "sharedCounters": sets}


CSI_NODES = st.fixed_dictionaries(
    {"drivers": st.lists(DRIVERS, max_size=3, unique_by=lambda each: str(each["name"]))}
)
SLICES = st.lists(pools(), min_size=1, max_size=2, unique_by=lambda each: str(each["driver"]))
PARTS: dict[str, st.SearchStrategy[Any]] = {"csiNode": CSI_NODES, "resourceSlices": SLICES}
PROFILES: dict[str, st.SearchStrategy[Any]] = {
    "profile": st.sampled_from([each.value for each in GpuProfile])
}
GPUS = st.fixed_dictionaries({"count": st.integers(0, 64), "dra": st.just(True)}, optional=PROFILES)
SHAPES: dict[str, st.SearchStrategy[Any]] = {"shape": st.fixed_dictionaries({"gpu": GPUS})}
TEMPLATES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"companions": st.fixed_dictionaries({}, optional=PARTS)}, optional=SHAPES
)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with own_cluster("accepted", directory=tmp_path_factory.mktemp("accepted")) as own:
        yield own.kubectl


@pytest.fixture(scope="module")
def uid(kubectl: Kubectl) -> str:
    """Of a node that is there."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    return str(kubectl.api.create(NODES, node)["metadata"]["uid"])


def refusals(
    kubectl: Kubectl, template: Any, uid: str, *, tainted: bool = False
) -> list[str] | None:
    """What the API server says against what is made of a template; None where we refuse it."""
    try:
        found = compile_companions(Template.model_validate(template), group=GROUP, tainted=tainted)
    except ValidationError:
        return None
    except TemplateError as refused:
        assert refused.field.startswith("spec.template.companions.")
        assert refused.remedy
        return None
    said = []
    for each in found:
        base = longest_name(GROUP, node=not each.shared)
        body = json.loads(each.body(CompanionOwner(base, uid, GROUP, is_group=each.shared)))
        try:
            kubectl.api.create(f"{each.kind.path}?{DRY}", body)
        except Refused as refused:
            said.append(refused.message)
    return said


def test_what_we_take_the_api_server_takes(kubectl: Kubectl, uid: str) -> None:
    taken = []

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TEMPLATES, st.booleans())
    def held_against(template: Any, tainted: bool) -> None:
        said = refusals(kubectl, template, uid, tainted=tainted)
        assert not said
        taken.append(said is not None)

    held_against()
    assert sum(taken) > len(taken) // 2
