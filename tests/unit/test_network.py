"""Addresses of nodes from a range, and who holds them."""

import ipaddress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import TemplateError
from kwok_operator.formats.cidr import Block
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.template import Network
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.network import HeldAddresses, HeldBlocks, NodeNetwork
from kwok_operator.nodegroups.plan import NO_ADDRESSES, ObservedGroup, Places, Plan, make_plan
from kwok_operator.nodegroups.serials import Batch, compact

NAMES = NodeNames.of("web", "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55")


def network(group: str, **fields: object) -> NodeNetwork:
    found = NodeNetwork.of(Network.model_validate(fields), group=group)
    assert found is not None
    return found


def seen(places: Places, *batches: Batch, next_serial: int = 1, nodes: int = 1) -> ObservedGroup:
    """A group with so many nodes, the first of all serials, and these batches under way."""
    return ObservedGroup(
        nodes={serial: NAMES.name(serial) for serial in range(nodes)},
        terminating=frozenset(),
        gone=frozenset(),
        batches=batches,
        next_serial=next_serial,
        held=None,
        room=100,
        places=places,
    )


def planned(observed: ObservedGroup, size: int, *, may_create: bool = True, go: Any = ()) -> Plan:
    """`go`: serials whose nodes are named to be deleted."""
    named = {"nodesToDelete": [NAMES.name(serial) for serial in go]}
    spec = KwokNodeGroupSpec.model_validate({"targetSize": size, "scaleDown": named})
    return make_plan(spec, observed, names=NAMES, now="", may_create=may_create)


def limit_of(plan: Plan) -> str:
    return plan.target.limit.reason if plan.target.limit else ""


def taken(*serials: int) -> Places:
    """Eight places, of which these are taken."""
    return Places(8, lambda serial: int(serial % 8 in serials))


@given(
    st.sampled_from(["10.0.0.0/20", "fd00::/60"]),
    st.integers(0, 4),
    st.sampled_from([None, "172.16.0.0/29", "fd01::/100"]),
    st.text("ab", max_size=3),
    st.integers(0, 10**9),
)
def test_each_serial_of_a_turn_has_its_own(
    pods: str, bits: int, nodes: str | None, group: str, first: int
) -> None:
    within = ipaddress.ip_network(pods)
    size = within.prefixlen + bits
    found = network(group, podCIDR=pods, blockSize=size, nodeCIDR=nodes)
    assert found.places == min(
        2**bits, ipaddress.ip_network(nodes).num_addresses - 2 if nodes else 16
    )
    turn = range(first, first + found.places)
    blocks = [ipaddress.ip_network(str(found.block(serial))) for serial in turn]
    assert len(set(blocks)) == found.places
    assert all(b.prefixlen == size and b.subnet_of(within) for b in blocks)  # type: ignore[arg-type]
    addresses = {found.address(serial) for serial in turn}
    if nodes is None:
        assert addresses == {""}
        return
    hosts = ipaddress.ip_network(nodes)
    edges = {hosts.network_address, hosts.broadcast_address}
    assert len(addresses) == found.places
    assert all(ipaddress.ip_address(a) in hosts for a in addresses)
    assert not edges & {ipaddress.ip_address(a) for a in addresses}


BLOCKS = st.builds(
    lambda first, prefix: str(ipaddress.ip_network((first << 4, prefix), strict=False)),
    st.integers(0, 15),
    st.integers(24, 30),
)
CHANGES = st.lists(
    st.tuples(st.sampled_from("abcde"), st.none() | BLOCKS | st.just("none"), BLOCKS), max_size=20
)


@given(CHANGES)
def test_a_block_is_free_or_taken(
    changes: list[tuple[str, str | None, str]],
) -> None:
    held, plain = HeldBlocks(), dict[str, ipaddress.IPv4Network]()
    for node, change, asked in changes:
        plain.pop(node, None)
        if change is None:
            held.remove(node)
        else:
            held.put(node, change)
        if change not in (None, "none"):
            plain[node] = ipaddress.IPv4Network(change)
        wanted = ipaddress.IPv4Network(asked)
        for name in "abcdef":
            others = [block for other, block in plain.items() if other != name]
            own = plain.get(name) == wanted
            overlaps = any(block.overlaps(wanted) for block in plain.values())
            assert (not held.taken(Block.parse(asked), node=name)) is (own or not overlaps), others


def test_as_many_are_asked_for_as_have_addresses() -> None:
    observed = seen(taken(0, 1, 3, 5, 6))
    for size, asked in ((3, (2, 4)), (4, (2, 4, 7)), (9, (2, 4, 7))):
        plan = planned(observed, size)
        assert (plan.create, plan.target.value) == (asked, 1 + len(asked))
        assert limit_of(plan) == (NO_ADDRESSES if size > len(asked) + 1 else "")


def test_an_instance_that_is_yet_to_come_has_its_place() -> None:
    """Otherwise a second one is asked for in its place, and given up once the first is there."""
    observed = seen(taken(0), Batch(1, 5, ""), next_serial=6)
    for size, asked in ((6, ()), (8, (6, 7)), (11, (6, 7))):
        plan = planned(observed, size)
        assert plan.create == (1, 2, 3, 4, 5, *asked)
        assert plan.target.value == 6 + len(asked)
        assert limit_of(plan) == (NO_ADDRESSES if size > len(asked) + 6 else "")
    assert planned(observed, 3, go=(1, 2)).create == (3, 4)
    assert planned(observed, 8, go=(1, 2)).create == (3, 4, 5, 6, 7, 9, 10)


def test_what_waits_is_reported_in_the_same_way_where_nothing_may_be_asked_for() -> None:
    observed = seen(taken(0), Batch(1, 7, ""), next_serial=8)
    asking, telling = planned(observed, 11), planned(observed, 11, may_create=False)
    assert asking.target.limit is not None
    assert telling.target == asking.target
    assert (telling.batches, telling.next_serial) == (observed.batches, 8)
    fewer = planned(replace(observed, batches=()), 11, may_create=False)
    assert (fewer.target.value, fewer.pending, fewer.batches, fewer.next_serial) == (8, (), (), 8)


def test_an_address_is_one_nodes_whatever_its_blocks() -> None:
    nodes, held, every = "172.20.0.0/27", HeldAddresses(), list[str]()
    for group, pods, size in (("a", "10.1.0.0/16", 24), ("b", "10.2.0.0/16", 26)):
        found = network(group, podCIDR=pods, blockSize=size, nodeCIDR=nodes)
        for serial in range(found.places):
            name = f"{group}-{serial}"
            if not held.taken(found, serial, node=name) and serial < 15:
                held.put(name, str(found.block(serial)), found.address(serial))
                every.append(found.address(serial))
    assert len(every) == len(set(every)) > 15


@pytest.mark.parametrize("first", [0, 7])
def test_of_a_range_that_one_node_has_nothing_is_asked_for(first: int) -> None:
    held, found = HeldAddresses(), network("web", podCIDR="fd00::/8")
    held.put("other", "fd00::/8", "")
    places = Places(found.places, lambda serial: held.taken(found, serial, node="web"))
    observed = seen(places, next_serial=first, nodes=0)
    plan = planned(observed, 2)
    assert (plan.create, plan.batches, plan.next_serial) == ((), (), first)
    assert limit_of(plan) == NO_ADDRESSES
    held.remove("other")
    assert planned(observed, 2).create == (first, first + 1)


def test_a_block_of_another_group_is_passed_over_however_many_blocks_it_has() -> None:
    """Of a range of 2**48 blocks another group holds a half: no set of serials has them all."""
    held, ours = HeldAddresses(), network("web", podCIDR="fd00::/16", blockSize=64)
    theirs = network("large", podCIDR="fd00::/16", blockSize=17)
    half = next(b for b in map(theirs.block, range(2)) if b.within(17) == ours.block(2).within(17))
    held.put("large-0", str(half), "")
    places = Places(ours.places, lambda serial: held.taken(ours, serial, node=NAMES.name(serial)))
    plan = planned(seen(places, Batch(0, 1, ""), next_serial=2, nodes=0), 3)
    assert len(plan.create) == 3
    assert plan.create[2] > 2**40
    assert not held.taken(ours, plan.create[2], node="")
    assert len(compact(plan.batches, here=set(), gone=set())) == 2
    with pytest.raises(TemplateError, match=r"blockSize.*at most 72"):
        network("web", podCIDR="fd00::/16", blockSize=96)
