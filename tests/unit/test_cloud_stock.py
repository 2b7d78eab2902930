"""Who gets what of a group's stock and of pools."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cloud.api.capacitypool import MAX_SHOWN_GROUPS, KwokCapacityPoolSpec
from kwok_operator.cloud.api.cloud import ErrorClass
from kwok_operator.cloud.poolstatus import pool_status
from kwok_operator.cloud.states import Fault
from kwok_operator.cloud.stock import (
    CapacityPool,
    Holder,
    Refused,
    StockDecision,
    StockRequest,
    Use,
    decide,
)


def amounts(**resources: int) -> dict[str, Fraction]:
    return {name: Fraction(amount) for name, amount in resources.items()}


def pool(name: str, **spec: Any) -> CapacityPool:
    return CapacityPool.of(name, KwokCapacityPoolSpec.model_validate(spec))


def decided(
    request: StockRequest, *, pools: Sequence[CapacityPool] = (), holders: Sequence[Holder] = ()
) -> StockDecision:
    return decide(request, pools={pool.name: pool for pool in pools}, holders=holders)


def refused(decision: StockDecision) -> Refused:
    assert decision.refused is not None
    return decision.refused


def test_of_a_hundred_asked_for_sixty_come_and_forty_are_refused() -> None:
    decision = decided(StockRequest("a", range(100), stock=60))
    assert decision.granted == tuple(range(60))
    fault = Fault(ErrorClass.OUT_OF_RESOURCES, "OutOfResources", "the group's stock is 60")
    assert decision.refused == Refused(tuple(range(60, 100)), None, "OutOfStock", fault)


def test_all_pools_must_have_room_in_every_resource() -> None:
    zone = pool("zone", resources={"cpu": 64, "nvidia.com/gpu": 8})
    quota = pool(
        "quota", resources={"cpu": "40"}, error={"class": "QuotaExceeded", "code": "VcpuLimit"}
    )
    each = {"cpu": Fraction(8), "nvidia.com/gpu": Fraction(1)}
    decision = decided(
        StockRequest("a", range(9), each, pools=["zone", "quota"]), pools=[zone, quota]
    )
    assert len(decision.granted) == 5
    message = "KwokCapacityPool quota has no more cpu"
    fault = Fault(ErrorClass.QUOTA_EXCEEDED, "VcpuLimit", message)
    assert decision.refused == Refused((5, 6, 7, 8), "quota", "PoolExhausted", fault)
    alone = decided(StockRequest("b", range(9), each, pools=["zone"]), pools=[zone])
    assert len(alone.granted) == 8


def test_what_is_held_is_no_request() -> None:
    held = Holder("a", [0, 1], pools=["zone"])
    request = StockRequest("a", [0, 1, 2, 2], pools=["zone"])
    decision = decided(request, pools=[pool("zone", instances=3)], holders=[held, held])
    assert decision == StockDecision((2,))


@pytest.mark.parametrize(
    ("pools", "reason"), [([], "PoolMissing"), ([pool("zone", outage=True)], "Outage")]
)
def test_nothing_is_decided_without_the_pool(pools: list[CapacityPool], reason: str) -> None:
    decision = decided(StockRequest("a", [4, 5], pools=["zone"]), pools=pools)
    assert decision == StockDecision(refused=Refused((4, 5), "zone", reason, None))


def test_nothing_is_decided_while_the_group_is_out() -> None:
    decision = decided(StockRequest("a", [4], outage=True))
    assert decision == StockDecision(refused=Refused((4,), None, "Outage", None))


@pytest.mark.parametrize("out", [{"outage": True}, {"pools": ["zone"]}, {"pools": ["missing"]}])
def test_what_is_sold_out_fails_in_an_outage_too(out: Any) -> None:
    request = StockRequest("a", [4], stock=1, **out)
    sold_out = decided(request, pools=[pool("zone", outage=True)], holders=[Holder("a", {1})])
    assert (refused(sold_out).serials, refused(sold_out).reason) == ((4,), "OutOfStock")
    assert refused(decided(request, pools=[pool("zone", outage=True)])).fault is None


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
_HOLDERS = st.lists(
    st.builds(
        Holder,
        st.sampled_from("abc"),
        st.sets(st.integers(0, 9), max_size=4),
        _EACH,
        st.lists(st.sampled_from("pq"), unique=True),
    ),
    max_size=4,
)
_REQUESTS = st.builds(
    StockRequest,
    st.sampled_from("abc"),
    st.lists(st.integers(0, 19), max_size=12),
    _EACH,
    st.lists(st.sampled_from("pq"), unique=True),
    st.none() | st.integers(0, 6),
)


def one_by_one(
    request: StockRequest, pools: dict[str, CapacityPool], holders: Sequence[Holder]
) -> list[int]:
    """The same, said plainly: instance by instance, in the order of the request."""
    used, granted = Use(holders), list[int]()
    for serial in request.serials:
        fits = not used.has(request.group, serial)
        fits = fits and (request.stock is None or used.instances(request.group) < request.stock)
        for name in request.pools:
            p, total = pools[name], used.total(name)
            fits = fits and (p.instances is None or total.instances < p.instances)
            for resource, limit in p.resources.items():
                more = request.each[resource]
                taken = total.resources.get(resource, Fraction())
                fits = fits and (not more or taken + more <= limit)
        if fits:
            used.add(Holder(request.group, [serial], request.each, request.pools))
            granted.append(serial)
    return granted


@given(_REQUESTS, _POOLS, _HOLDERS)
@settings(deadline=None, max_examples=200)
def test_it_is_what_deciding_one_by_one_gives(
    request: StockRequest, pools: dict[str, CapacityPool], holders: list[Holder]
) -> None:
    decision, held = decide(request, pools=pools, holders=holders), Use(holders)
    assert list(decision.granted) == one_by_one(request, pools, holders)
    left = set(decision.refused.serials) if decision.refused else set[int]()
    assert left.isdisjoint(decision.granted)
    asked = {s for s in request.serials if not held.has(request.group, s)}
    assert left.union(decision.granted) == asked
