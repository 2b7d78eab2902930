"""Who gets what of a group's stock and of pools.

- first come, first served, as deciding one by one would have it; what is held counts first
- whatever order the requests are given in
- a request needs all of its pools, in every resource; who is refused is told why
- no instance counts twice
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cloud.api.capacitypool import MAX_SHOWN_GROUPS, KwokCapacityPoolSpec
from kwok_operator.cloud.api.cloud import ErrorClass
from kwok_operator.cloud.poolstatus import pool_status
from kwok_operator.cloud.stock import (
    CapacityPool,
    Holder,
    Refused,
    StockDecision,
    StockRequest,
    Use,
    decide,
)
from tests.unit.clouds import QUICK


def amounts(**resources: int) -> dict[str, Fraction]:
    return {name: Fraction(amount) for name, amount in resources.items()}


def pool(name: str, **spec: Any) -> CapacityPool:
    return CapacityPool.of(name, KwokCapacityPoolSpec.model_validate(spec))


def decided(
    *requests: StockRequest, pools: Sequence[CapacityPool] = (), holders: Sequence[Holder] = ()
) -> StockDecision:
    return decide(requests, pools={pool.name: pool for pool in pools}, holders=holders)


def got(decision: StockDecision) -> set[tuple[str, int]]:
    return {(part.group, serial) for part in decision.granted for serial in part.serials}


def turned_away(decision: StockDecision) -> set[tuple[str, int]]:
    return {(part.group, serial) for part in decision.refused for serial in part.serials}


def test_of_a_hundred_asked_for_sixty_come_and_forty_are_refused() -> None:
    decision = decided(StockRequest("a", 0, range(100), stock=60))
    assert got(decision) == {("a", serial) for serial in range(60)}
    (refused,) = decision.refused
    assert (refused.serials, refused.pool, refused.reason) == (
        tuple(range(60, 100)),
        None,
        "OutOfStock",
    )
    assert refused.fault is not None
    assert refused.fault.code == "OutOfResources"
    assert refused.fault.message == "the group's stock is 60"


def test_all_pools_must_have_room_in_every_resource() -> None:
    zone = pool("zone", resources={"cpu": 64, "nvidia.com/gpu": 8})
    quota = pool(
        "quota", resources={"cpu": "40"}, error={"class": "QuotaExceeded", "code": "VcpuLimit"}
    )
    each = {"cpu": Fraction(8), "nvidia.com/gpu": Fraction(1)}
    request = StockRequest("a", 0, range(9), each, pools=["zone", "quota"])
    decision = decided(request, pools=[zone, quota])
    assert len(got(decision)) == 5
    (refused,) = decision.refused
    assert (refused.pool, refused.reason) == ("quota", "PoolExhausted")
    assert refused.fault is not None
    assert refused.fault.error_class is ErrorClass.QUOTA_EXCEEDED
    assert refused.fault.code == "VcpuLimit"
    assert refused.fault.message == "KwokCapacityPool quota has no more cpu"
    assert (
        len(got(decided(StockRequest("b", 0, range(9), each, pools=["zone"]), pools=[zone]))) == 8
    )


def test_first_come_first_served_but_what_is_held_is_not_taken_away() -> None:
    zone = pool("zone", instances=3)
    late, early = (
        StockRequest(group, at, [0, 1], pools=["zone"]) for group, at in (("a", 2), ("b", 1))
    )
    assert got(decided(late, early, pools=[zone])) == {("b", 0), ("b", 1), ("a", 0)}
    held = Holder("c", range(2), pools=["zone"])
    assert got(decided(late, early, pools=[zone], holders=[held])) == {("b", 0)}


def test_what_is_held_is_no_request() -> None:
    held = Holder("a", [0, 1], pools=["zone"])
    request = StockRequest("a", 0, [0, 1, 2, 2], pools=["zone"])
    decision = decided(request, request, pools=[pool("zone", instances=3)], holders=[held, held])
    assert got(decision) == {("a", 2)}
    assert not decision.refused


@pytest.mark.parametrize(
    ("pools", "reason", "by"),
    [([], "PoolMissing", "zone"), ([pool("zone", outage=True)], "Outage", "zone")],
)
def test_nothing_is_decided_where_a_pool_is_missing_or_out(
    pools: list[CapacityPool], reason: str, by: str
) -> None:
    decision = decided(StockRequest("a", 0, [4, 5], pools=["zone"]), pools=pools)
    assert decision == StockDecision(undecided=(Refused("a", 0, (4, 5), by, reason, None),))


def test_nothing_is_decided_while_the_group_is_out() -> None:
    decision = decided(StockRequest("a", 0, [4], outage=True))
    assert decision.undecided[0].reason == "Outage"


def test_use_by_group() -> None:
    use = Use(
        [
            Holder("a", {0, 1}, amounts(cpu=4), pools=["zone", "quota", "zone"]),
            Holder("a", {1, 2}, amounts(cpu=8), pools=["zone"]),
            Holder("b", {0}, amounts(cpu=1), pools=["zone"]),
        ]
    )
    assert use.total("zone").instances == 4
    assert use.total("zone").resources == amounts(cpu=17)
    assert {group: share.instances for group, share in use.shares("zone").items()} == {
        "a": 3,
        "b": 1,
    }
    assert use.total("quota").instances == 2
    assert use.total("other").instances == 0


def test_the_status_of_a_pool_says_who_takes_what() -> None:
    spec = KwokCapacityPoolSpec.model_validate(
        {"instances": 50, "resources": {"memory": "1Ti", "nvidia.com/gpu": 8}}
    )
    each = {"memory": Fraction(2**34), "cpu": Fraction(4)}
    use = Use([Holder("a", range(3), each, ["zone"]), Holder("b", range(5), each, ["zone"])])
    status = pool_status("zone", spec, use=use, refused=7, generation=2)
    assert status.dump() == {
        "observedGeneration": 2,
        "instances": 8,
        "resources": {"memory": "128Gi", "nvidia.com/gpu": "0"},
        "groups": [
            {"group": "b", "instances": 5, "resources": {"memory": "80Gi", "nvidia.com/gpu": "0"}},
            {"group": "a", "instances": 3, "resources": {"memory": "48Gi", "nvidia.com/gpu": "0"}},
        ],
        "otherGroups": 0,
        "refused": 7,
        "conditions": [],
    }


def test_the_status_of_a_pool_names_so_many_groups_and_counts_the_others() -> None:
    use = Use(Holder(f"group-{n}", [0], pools=["zone"]) for n in range(MAX_SHOWN_GROUPS + 3))
    status = pool_status("zone", KwokCapacityPoolSpec(), use=use, refused=0, generation=1)
    assert len(status.groups) == MAX_SHOWN_GROUPS
    assert (status.instances, status.other_groups) == (MAX_SHOWN_GROUPS + 3, 3)


_POOLS = st.fixed_dictionaries(
    {
        name: st.builds(
            lambda name, instances, cpu, gpu: CapacityPool(
                name,
                instances,
                {k: Fraction(v) for k, v in (("cpu", cpu), ("gpu", gpu)) if v is not None},
            ),
            st.just(name),
            st.none() | st.integers(0, 8),
            st.none() | st.integers(0, 30),
            st.none() | st.integers(0, 6),
        )
        for name in ("p", "q")
    }
)
_EACH = st.builds(amounts, cpu=st.integers(0, 7), gpu=st.integers(0, 3))
_GROUPS = st.fixed_dictionaries(
    {
        group: st.tuples(
            _EACH,
            st.lists(st.sampled_from("pq"), unique=True),
            st.none() | st.integers(0, 6),
            st.integers(0, 4),
        )
        for group in "abc"
    }
)
_ASKED = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(1, 5)), max_size=6
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, CapacityPool], list[StockRequest], list[Holder]]:
    """Pools, requests of three groups with serials of their own, and what the groups hold."""
    groups = draw(_GROUPS)
    holders, requests, following = [], [], {}
    for group, (each, pools, _, held) in groups.items():
        holders.append(Holder(group, range(held), each, pools))
        following[group] = held
    for group, at, count in sorted(draw(_ASKED), key=lambda asked: asked[1]):
        each, pools, stock, _ = groups[group]
        serials = range(following[group], following[group] + count)
        following[group] += count
        requests.append(StockRequest(group, at, serials, each, pools, stock))
    return draw(_POOLS), draw(st.permutations(requests)), holders


def one_by_one(
    pools: dict[str, CapacityPool], requests: Sequence[StockRequest], holders: Sequence[Holder]
) -> set[tuple[str, int]]:
    """The same, said plainly: instance by instance, in the order of the contract."""
    used = Use(holders)
    found = set()
    asked = [(r.requested_at, r.group, s, r) for r in requests for s in r.serials]
    for _, _, serial, r in sorted(asked, key=lambda entry: entry[:3]):
        fits = r.stock is None or used.instances(r.group) < r.stock
        for name in r.pools:
            p, total = pools[name], used.total(name)
            fits = fits and (p.instances is None or total.instances < p.instances)
            for resource, limit in p.resources.items():
                more = r.each[resource]
                taken = total.resources.get(resource, Fraction())
                fits = fits and (not more or taken + more <= limit)
        if fits:
            used.add(Holder(r.group, [serial], r.each, r.pools))
            found.add((r.group, serial))
    return found


@given(worlds())
@settings(deadline=None, max_examples=200)
def test_it_is_what_deciding_one_by_one_gives(
    world: tuple[dict[str, CapacityPool], list[StockRequest], list[Holder]],
) -> None:
    pools, requests, holders = world
    decision = decide(requests, pools=pools, holders=holders)
    assert got(decision) == one_by_one(pools, requests, holders)
    asked = {(r.group, serial) for r in requests for serial in r.serials}
    assert got(decision) | turned_away(decision) == asked
    assert not got(decision) & turned_away(decision)


@given(worlds(), st.randoms(use_true_random=False))
@QUICK
def test_the_order_of_what_is_given_does_not_matter(
    world: tuple[dict[str, CapacityPool], list[StockRequest], list[Holder]], random: Any
) -> None:
    pools, requests, holders = world
    shuffled = random.sample(requests, len(requests)), random.sample(holders, len(holders))
    assert decide(shuffled[0], pools=pools, holders=shuffled[1]) == decide(
        requests, pools=pools, holders=holders
    )
