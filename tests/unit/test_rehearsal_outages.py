"""Outages that several steps of a timeline begin and end."""

import json
import random
from typing import Any

import pytest

from kwok_operator.constants import GROUPS_PATH, ZONE_LABEL
from kwok_operator.rehearsal.outages import OutageChange, Outages, zone_of
from kwok_operator.rehearsal.scenario.timeline import OutageStep

CLOUDS: dict[str, dict[str, Any]] = {"g": {}, "h": {"stock": 3}, "gone": {"outage": True}}
LABELS = {"metadata": {"labels": {ZONE_LABEL: "a"}}}


def groups(clouds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    status = {"resolvedTemplate": LABELS}
    return {name: {"spec": {"cloud": cloud}, "status": status} for name, cloud in clouds.items()}


@pytest.mark.parametrize("seed", range(30))
def test_a_group_is_out_until_the_last_step_that_took_it_out_ends(seed: int) -> None:
    draws = random.Random(seed)
    steps = [draws.choice([{"group": "g"}, {"group": "h"}, {"zone": "a"}]) for _ in range(4)]
    outages, clouds = Outages(), json.loads(json.dumps(CLOUDS))
    begun: dict[int, list[OutageChange]] = {}

    def patch(changes: list[OutageChange]) -> None:
        for each in changes:
            cloud = clouds[each.path.removeprefix(f"{GROUPS_PATH}/")]
            cloud.update(each.spec["cloud"])
            for field in [field for field, value in cloud.items() if value is None]:
                del cloud[field]

    waiting = list(range(len(steps)))
    while waiting or begun:
        if waiting and (not begun or draws.random() < 0.6):
            number = waiting.pop(0)
            step = OutageStep.model_validate(steps[number])
            begun[number] = outages.begin(step, groups(clouds))
            patch(begun[number])
        else:
            patch(outages.end(begun.pop(draws.choice(list(begun)))))
        for name in ("g", "h"):
            holds = any(steps[n] in ({"group": name}, {"zone": "a"}) for n in begun)
            assert bool(clouds[name].get("outage")) == holds
            emptied = any("zone" in steps[n] for n in begun)
            assert clouds[name].get("stock") == (0 if emptied else CLOUDS[name].get("stock"))
    assert clouds["gone"].get("outage") is True


def test_a_group_without_a_status_is_in_the_zone_of_its_template() -> None:
    specs: list[dict[str, Any]] = [
        {"template": {"shape": {"zone": "a"}}},
        {"template": {"node": LABELS}},
        {},
    ]
    assert [zone_of({"spec": spec}) for spec in specs] == ["a", "a", ""]
