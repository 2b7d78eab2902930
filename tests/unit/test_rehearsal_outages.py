"""Outages that several steps of a timeline begin and end."""

import json
import random
from typing import Any

import pytest

from kwok_operator.constants import GROUPS_PATH, ZONE_LABEL
from kwok_operator.rehearsal.outages import OutageChange, Outages, drawn_units, zone_of
from kwok_operator.rehearsal.scenario.timeline import OutageStep, UnitsStep

CLOUDS: dict[str, dict[str, Any]] = {
    "g": {},
    "h": {"stock": 3, "outageUnits": ["pool-9"]},
    "gone": {"outage": True},
}
RACKS = {"domain": "pool", "levels": [{"label": "example.com/rack", "of": 2}]}
LABELS = {"metadata": {"labels": {ZONE_LABEL: "a"}}}


def groups(clouds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    status = {"resolvedTemplate": LABELS}
    template = {"topology": RACKS}
    return {
        name: {"spec": {"cloud": cloud, "template": template if name in "gh" else {}}}
        | {"status": status}
        for name, cloud in clouds.items()
    }


@pytest.mark.parametrize("seed", range(30))
def test_a_group_is_out_until_the_last_step_that_took_it_out_ends(seed: int) -> None:
    draws = random.Random(seed)
    units = [["pool-0"], ["pool-1", "pool-9"], ["pool-0", "pool-1"]]
    kinds: list[dict[str, Any]] = [{"group": "g"}, {"group": "h"}, {"zone": "a"}]
    kinds += [{"topology": {"values": values}} for values in units]
    steps = [draws.choice(kinds) for _ in range(6)]
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
            own = (step.topology and step.topology.values) or ()
            begun[number] = outages.begin(step, groups(clouds), units=own)
            patch(begun[number])
        else:
            patch(outages.end(begun.pop(draws.choice(list(begun))), groups(clouds)))
        for name in ("g", "h"):
            holds = any(steps[n] in ({"group": name}, {"zone": "a"}) for n in begun)
            assert bool(clouds[name].get("outage")) == holds
            emptied = any("zone" in steps[n] for n in begun)
            assert clouds[name].get("stock") == (0 if emptied else CLOUDS[name].get("stock"))
            before = CLOUDS[name].get("outageUnits", [])
            out = [v for n in begun for v in steps[n].get("topology", {}).get("values", ())]
            assert sorted(clouds[name].get("outageUnits", [])) == sorted({*before, *out})
    assert clouds["gone"].get("outage") is True


def test_the_seed_decides_which_units_go() -> None:
    there, step = [f"pool-{n}" for n in range(9)], UnitsStep(level="example.com/rack", count=2)
    drawn = {drawn_units(there, step, seed=f"{n}", what="timeline/0") for n in range(20)}
    assert len(drawn) > 9
    for units in drawn:
        assert len(units) == 2 and {*units} < {*there}
    again = drawn_units(there[::-1] * 2, step, seed="5", what="timeline/0")
    assert again == drawn_units(there, step, seed="5", what="timeline/0")


def test_a_group_without_a_status_is_in_the_zone_of_its_template() -> None:
    specs: list[dict[str, Any]] = [
        {"template": {"shape": {"zone": "a"}}},
        {"template": {"node": LABELS}},
        {},
    ]
    assert [zone_of({"spec": spec}) for spec in specs] == ["a", "a", ""]
