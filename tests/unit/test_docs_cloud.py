"""That docs/cloud.md, and what it leads to, says what the code says of the simulated cloud."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel

from kwok_operator.cloud.api.capacitypool import KwokCapacityPoolSpec
from kwok_operator.cloud.api.cloud import Cloud, ErrorClass, Failures, Flapping, Interruptions
from kwok_operator.cloud.api.cloudstatus import MAX_REFUSED, MAX_ROWS
from kwok_operator.cloud.api.delay import Delay
from kwok_operator.cloud.arrival import MAX_TRIES
from kwok_operator.cloud.states import Fault, State
from kwok_operator.cloud.summary import autoscaler_state
from kwok_operator.cloud.terms import MAX_TERMS
from kwok_operator.nodegroups.api.status import (
    ALL_ARRIVED,
    FAILURES,
    OUTAGE,
    PROVISIONING,
    UNIT_OUTAGE,
)
from kwok_operator.shim.troublefile import parse_plan

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = (DOCS / "cloud.md").read_text()
PARTS: Final[dict[str, type[BaseModel]]] = {
    "failures": Failures,
    "interruptions": Interruptions,
    "flapping": Flapping,
}
"""Fields whose own fields have a line each."""


def table(heading: str, page: str = PAGE) -> list[list[str]]:
    """The cells of the first table whose heading begins with a word."""
    lines = page[page.index(f"| {heading} ") :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def fields_of(model: type[BaseModel], before: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = before + (field.alias or name)
        if path in PARTS:
            yield from fields_of(PARTS[path], f"{path}.")
        else:
            yield path


def in_code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_each_field_has_its_line() -> None:
    assert [in_code(row[0])[0] for row in table("Field of `spec.cloud`")] == [*fields_of(Cloud)]
    fields_of_pools = [in_code(row[0])[0] for row in table("Field of spec")]
    assert fields_of_pools == [*fields_of(KwokCapacityPoolSpec)]


def test_each_kind_of_delay_has_its_line() -> None:
    kinds = [row[0].strip("`{ ").partition(":")[0] for row in table("Delay")]
    assert kinds == [*fields_of(Delay)]


def test_each_state_is_documented_as_the_shim_reports_it() -> None:
    fault = Fault(ErrorClass.OTHER, "Other", "")
    lines = {in_code(row[0])[0]: row[2] for row in table("State")}
    assert list(lines) == [state.value for state in State]
    for state in set(State) - {State.GONE}:
        name, error = autoscaler_state(state, fault)
        assert lines[state].partition(",")[0] == name.value
        assert ("error" in lines[state]) is (error is not None)


def test_each_reason_has_its_line() -> None:
    reasons = [reason for row in table("Condition") for reason in in_code(row[2])]
    assert reasons[: len(FAILURES) + 3] == [ALL_ARRIVED, *FAILURES, OUTAGE, PROVISIONING]
    shown = {"SpecOutage", "PoolOutage", UNIT_OUTAGE, "NothingToHold", "HeldByStage", "NotHeld"}
    assert shown < set(reasons)


def test_the_trouble_of_an_api_that_is_shown_can_be_had() -> None:
    page = (DOCS / "cluster-autoscaler.md").read_text()
    (block,) = re.findall(r"```yaml\n(seed: .*?)```", page, re.DOTALL)
    plan = parse_plan(yaml.safe_load(block))
    assert {"NodeGroupIncreaseSize", "*"} < {rule.name for rule in plan.rpcs}


def test_what_an_edit_does_is_as_it_was_decided() -> None:
    decision = (DOCS / "decisions" / "017-simulated-cloud.md").read_text()
    decided = table("edited", decision)
    assert [[cell.replace("`", "") for cell in row] for row in table("Edited")] == decided


def test_no_watch_is_over_several_kinds() -> None:
    """kubectl refuses that."""
    root = DOCS.parent
    pages = [root / "README.md", *DOCS.glob("*.md"), *(root / "deploy" / "samples").glob("*.yaml")]
    lines = [line for page in pages for line in page.read_text().splitlines()]
    refused = re.compile(r"kubectl get \w+,.* (-w|--watch)\b")
    assert [line for line in lines if refused.search(line)] == []


def test_limits_are_those_in_force() -> None:
    limits = PAGE.partition("## Limits")[2]
    for says in (
        f"`status.cloud.instances`: {MAX_ROWS},",
        f"Refusals that are remembered: {MAX_REFUSED}.",
        f"while instances are under way: {MAX_TERMS},",
        f"has failed {MAX_TRIES:,} times",
    ):
        assert says in limits
