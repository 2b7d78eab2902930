"""What the simulated cloud does to a node's devices."""

from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.devices import DeviceCourse, device_course
from tests.unit.clouds import CLOUDS

NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)
MADE = 1_700_000_000_000


def course(cloud: Cloud, serial: int, names: list[str]) -> DeviceCourse:
    return device_course(cloud, group="web", serial=serial, made=MADE, devices=names)


@given(CLOUDS, st.integers(0, 500), NAMES)
def test_a_course_is_drawn_once_and_for_all(cloud: Cloud, serial: int, names: list[str]) -> None:
    found = course(cloud, serial, names)
    assert course(cloud, serial, names[::-1]) == found
    if cloud.devices is None:
        assert found == DeviceCourse(MADE)
    if found.published is None:
        assert not found.failing
        return
    assert found.published >= MADE
    assert all(at >= found.published for at in found.failing.values())
    shown, now = set[str](), MADE - 1
    while (change := found.next_change(now)) is not None:
        assert change > now
        assert shown <= found.failed(change), "what has failed stays so"
        shown, now = set(found.failed(change)), change
    assert shown == set(found.failing)


def test_shares_are_those_that_were_asked_for() -> None:
    devices = {
        "neverPublished": {"probability": "0.2"},
        "failures": {"probability": "0.1", "serials": "7"},
    }
    cloud = Cloud.model_validate({"devices": devices, "seed": "run-1"})
    found = [course(cloud, serial, list("abcdefgh")) for serial in range(2_000)]
    published = [each for each in found if each.published is not None]
    assert 0.77 < len(published) / 2_000 < 0.83
    assert 0.09 < sum(len(each.failing) for each in published) / (8 * len(published)) < 0.11
    assert found[7].published is None or len(found[7].failing) == 8
