"""What the shim knows: groups and nodes in memory, by what watches and our own writes tell."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.clusterapi.discovery import Discovery
from kwok_operator.nodegroups.client import Group, UnreadableGroup
from kwok_operator.shim.settings import Selector
from kwok_operator.shim.store import Store
from tests.fakes.recording import Clock
from tests.fakes.shimstore import group_of, node_of, pending, store_of


def target(store: Store, name: str = "web") -> int:
    return store.fleet(served(store, name)).target


def served(store: Store, name: str = "web") -> Group:
    group = store.served(name)
    assert group is not None
    return group


def owner(store: Store, provider_id: str, name: str = "") -> str | None:
    group = store.group_for(provider_id, name or provider_id.removeprefix("kwok:"))
    return group.name if group else None


class TestOrder:
    def test_an_older_object_never_replaces_a_newer_one(self) -> None:
        store = store_of(group_of(version=9, targetSize=5))
        assert store.put_group(group_of(version=8, targetSize=4)) is False
        assert store.put_group(group_of(version=9, targetSize=3)) is False
        assert target(store) == 5
        assert store.put_group(group_of(version=10, targetSize=2)) is True, "versions are numbers"
        assert target(store) == 2

    def test_the_answer_to_a_write_that_comes_after_the_deletion(self) -> None:
        group = group_of(version=3)
        store = store_of(group)
        store.groups.remove(group_of(version=9))
        assert store.put_group(group_of(version=8, targetSize=5)) is False
        assert store.known("web") is None


class TestMadeAgain:
    def test_the_new_one_holds_and_has_none_of_the_old_nodes(self) -> None:
        old = group_of(uid="one", version=5, targetSize=2)
        store = store_of(old)
        store.put_node(node_of(old, 0))
        new = group_of(uid="two", version=9, targetSize=1)
        store.put_group(new)
        assert store.fleet(served(store)).present == {}
        assert owner(store, f"kwok:{old.names.name(0)}") is None
        store.put_node(node_of(new, 0))
        assert store.fleet(served(store)).present == {0: new.names.name(0)}

    def test_the_end_of_the_old_one_does_not_end_the_new_one(self) -> None:
        old, new = group_of(uid="one", version=5), group_of(uid="two", version=9)
        store = store_of(old, new)
        store.groups.remove(old)
        assert served(store).uid == "two"


class TestNodes:
    def test_they_may_come_before_their_group_and_after(self) -> None:
        group, store = group_of(), store_of()
        store.put_node(node_of(group, 4))
        store.put_group(group)
        store.put_node(node_of(group, 5))
        assert store.fleet(group).present == {s: group.names.name(s) for s in (4, 5)}
        assert owner(store, f"kwok:{group.names.name(4)}") == "web"

    def test_one_that_only_looks_like_ours_is_nobodys(self) -> None:
        group = group_of(status={"nextSerial": 0})
        lookalikes: list[dict[str, Any]] = [
            {"owner_uids": ()},
            {"owner_uids": ("another",)},
            {"annotations": {}},
            {"annotations": {"cluster-autoscaler.kwok.nodegroup/name": "web"}},
            {"labels": {}},
            {"labels": {"kwok-operator.io/node-group": "db"}},
            {"name": "ip-10-0-0-1"},
            {"name": "web-zzzz-000001"},
        ]
        for changes in lookalikes:
            store, view = store_of(group), node_of(group, 1, **changes)
            store.put_node(view)
            assert store.fleet(group).present == {}, changes
            assert owner(store, view.provider_id, view.name) is None, changes

    def test_one_that_has_the_providerid_of_ours_takes_nothing_away(self) -> None:
        group = group_of()
        store = store_of(group)
        store.put_node(node_of(group, 1))
        imposter = node_of(group, 1, name="mine", owner_uids=())
        for news in (store.nodes.upsert, store.nodes.remove):
            news(imposter)
            assert store.fleet(group).present == {1: group.names.name(1)}
        store.nodes.replace([imposter], 1)
        assert store.fleet(group).present == {}

    def test_one_on_its_way_out_is_leaving_and_one_taken_from_its_group_nobodys(self) -> None:
        group = group_of()
        store = store_of(group)
        store.put_node(node_of(group, 1))
        store.put_node(node_of(group, 1, deleting=True))
        assert store.fleet(group).present == {}
        assert store.fleet(group).leaving == {1}
        store.put_node(node_of(group, 2))
        store.put_node(node_of(group, 2, owner_uids=()))
        assert store.fleet(group).present == {}
        assert store.fleet(group).leaving == {1}

    def test_a_providerid_of_another_form_is_kept_as_it_is(self) -> None:
        """As of nodes that are older than the present --provider-id-prefix."""
        group = group_of()
        store = store_of(group)
        name = group.names.name(1)
        store.put_node(node_of(group, 1, provider_id=f"kwok://{name}"))
        assert owner(store, f"kwok://{name}", name) == "web"
        assert owner(store, f"kwok:{name}", name) == "web", "it may be a placeholder"
        assert store.node_of(group, f"kwok://{name}") == name


class TestInstances:
    def test_given_out_serials_are_ours_with_a_node_or_without(self) -> None:
        group = group_of(status={"nextSerial": 3})
        store = store_of(group)
        assert owner(store, f"kwok:{group.names.name(2)}") == "web"
        assert owner(store, f"kwok:{group.names.name(3)}") is None
        store.put_node(node_of(group, 7))
        assert owner(store, f"kwok:{group.names.name(6)}") == "web", "a lost status is harmless"

    def test_serials_after_those_that_are_named_and_so_passed_over_are_ours(self) -> None:
        names, count = group_of().names, {"nextSerial": 3}
        named = {"nodesToDelete": [names.name(3), names.name(4)]}
        store = store_of(group_of(status=count, targetSize=2, scaleDown=named))
        owners = [owner(store, f"kwok:{names.name(serial)}") for serial in (6, 7)]
        assert owners == ["web", None], "its status may not show yet that 5 and 6 are used"

    def test_a_name_alone_is_not_enough_and_a_node_has_one_name(self) -> None:
        group = group_of(status={"nextSerial": 3})
        store = store_of(group)
        for provider_id in ("", "i-0123", "aws:///eu-west-1b/i-0123", "kwok:"):
            assert owner(store, provider_id, group.names.name(0)) is None, provider_id
        store.put_node(node_of(group, 1))
        assert owner(store, f"kwok:{group.names.name(1)}", group.names.name(2)) is None

    def test_groups_whose_names_begin_alike(self) -> None:
        groups = [group_of(name, status={"nextSerial": 1}) for name in ("a", "a-b", "a-b-c")]
        store = store_of(*groups)
        assert [owner(store, f"kwok:{g.names.name(0)}") for g in groups] == ["a", "a-b", "a-b-c"]

    @given(st.text(max_size=80), st.text(max_size=80))
    def test_any_provider_id_and_name_is_answered(self, provider_id: str, name: str) -> None:
        assert owner(store_of(group_of(status={"nextSerial": 3})), provider_id, name or "-") is None


class TestPending:
    def test_a_node_gone_within_an_open_batch_is_not_pending_again(self) -> None:
        group = group_of(status={"nextSerial": 9, "pending": [pending(2, 5)]})
        store = store_of(group)
        for serial in (3, 4):
            store.put_node(node_of(group, serial))
        store.drop_node(node_of(group, 3))
        assert store.fleet(group).pending == (2, 5)
        store.nodes.replace([node_of(group, 2)], 1)
        assert store.fleet(group).pending == (5,), "nor is one that a new list has not"
        assert set(store.fleet(group).present) == {2}

    def test_nobody_waits_longer_for_the_other_watch_because_the_clock_was_set_back(self) -> None:
        clock = Clock(1e9)
        before = group_of(status={"nextSerial": 1, "pending": [pending(0, 0)]})
        store = store_of(before, clock=clock)
        store.put_group(group := group_of(status={"nextSerial": 1}))
        assert store.fleet(group).pending == (0,)
        clock.now -= 3600
        assert store.fleet(group).pending == ()

    def test_gone_serials_are_kept_only_while_they_may_be_waited_for(self) -> None:
        # Nodes churn while one is waited for: their serials go by without end.
        group = group_of(status={"nextSerial": 1, "pending": [pending(0, 0)]})
        store = store_of(group)
        for serial in range(1, 100):
            store.put_node(node_of(group, serial))
            store.drop_node(node_of(group, serial))
            group = group_of(status={"nextSerial": serial, "pending": [pending(0, 0)]})
            store.put_group(group)
        assert store.fleet(group).gone == {99}, "the group's news of it is still to come"
        asked = {"nextSerial": 100, "pending": [pending(0, 0), pending(99, 99)]}
        store.put_group(group := group_of(status=asked))
        assert store.fleet(group).pending == (0,)

    def test_a_batch_that_nobody_can_have_written_is_none(self) -> None:
        group = group_of(status={"pending": [pending(5, 2), pending(0, 10**9)]})
        assert store_of(group).fleet(group).pending == ()


sizes = st.none() | st.integers(0, 9)


@given(
    wanted=sizes,
    held=sizes,
    bounds=st.none() | st.tuples(sizes, sizes),
    nodes=st.integers(0, 4),
    leaving=st.integers(0, 2),
    missing=st.integers(0, 3),
)
def test_the_target_is_that_of_the_fleet(
    wanted: int | None,
    held: int | None,
    bounds: tuple[int | None, int | None] | None,
    nodes: int,
    leaving: int,
    missing: int,
) -> None:
    there = nodes + leaving
    batches = [pending(there, there + missing - 1)] if missing else []
    group = group_of(
        targetSize=wanted,
        autoscaling=None if bounds is None else {"minSize": bounds[0], "maxSize": bounds[1]},
        status={"targetSize": held, "pending": batches},
    )
    store = store_of(group)
    for serial in range(there):
        store.put_node(node_of(group, serial, deleting=serial >= nodes))
    assert store.target(group) == store.fleet(group).target


@pytest.mark.parametrize("nodes_go_first", [True, False])
def test_deleted_groups_and_nodes_leave_nothing_behind(nodes_go_first: bool) -> None:
    """Whoever tries things out makes groups by the thousand, and deletes them."""
    clock = iter(range(0, 10**6, 2))
    store = store_of(clock=lambda: float(next(clock)))
    found = []
    for turn in range(300):
        group = group_of(f"g{turn}", uid=f"u{turn}")
        view = node_of(group, 0, ready=False)
        store.groups.upsert(group)
        store.nodes.upsert(view)
        going = [lambda v=view: store.nodes.remove(v), lambda g=group: store.groups.remove(g)]
        for go in going if nodes_go_first else reversed(going):
            go()
        found.append(entries(store))
    assert found[-1] == found[200] < 50


def test_a_new_list_of_nodes_leaves_nothing_of_groups_that_are_gone() -> None:
    store = store_of()
    before = entries(store)
    group = group_of()
    store.nodes.replace([node_of(group, serial) for serial in range(5)], 1)
    store.nodes.replace([], 2)
    assert entries(store) == before


def entries(thing: object) -> int:
    """How much an object keeps."""
    kept = [each for each in vars(thing).values() if isinstance(each, dict | set | frozenset)]
    return sum(len(each) for each in kept)


class TestReplace:
    def test_an_unreadable_group_is_neither_gone_nor_changed(self) -> None:
        store = store_of(group_of(version=3, targetSize=5))
        store.put_node(node_of(group_of(), 0))
        store.groups.replace([UnreadableGroup("web", "uid-of-web", 9, why="odd")], 9)
        assert target(store) == 5
        assert store.has_node(served(store))
        store.groups.replace([], 10)
        assert store.known("web") is None

    def test_a_list_that_is_older_than_a_write_takes_nothing_away(self) -> None:
        store = store_of(group_of("a", version=9, targetSize=2))
        store.groups.replace([group_of("a", version=5, targetSize=1)], 6)
        assert target(store, "a") == 2
        store.groups.replace([], 6)
        assert target(store, "a") == 2

    def test_a_newer_list_replaces_newer_objects(self) -> None:
        # The cluster was restored, and others have written since.
        store = store_of(group_of("a", version=9, targetSize=2), group_of("b", version=8))
        store.groups.remove(group_of("b", version=10))
        listed = [group_of("a", version=5, targetSize=1), group_of("b", version=8, targetSize=3)]
        store.groups.replace(listed, 20)
        assert (target(store, "a"), target(store, "b")) == (1, 3)

    def test_after_a_restore_nothing_is_newer(self) -> None:
        group = group_of(version=900, targetSize=5, status={"nextSerial": 5})
        store = store_of(group, group_of("made-since", version=950))
        store.nodes.replace([node_of(group, serial) for serial in range(5)], 1_000)
        store.forget_versions()
        assert target(store) == 5, "reads are answered until all is listed anew"
        store.groups.replace([group_of(version=700, targetSize=2)], 800)
        store.nodes.replace([node_of(group, 0)], 800)
        assert [g.name for g in store.all_served()] == ["web"]
        assert (target(store), set(store.fleet(served(store)).present)) == (2, {0})
        assert store.fleet(served(store)).next_serial == 1
        store.groups.upsert(group_of(version=801, targetSize=3))
        assert target(store) == 3

    def test_it_is_synced_when_both_have_been_listed(self) -> None:
        store = store_of(synced=False)
        store.groups.replace([], 1)
        assert not store.synced
        store.nodes.replace([], 1)
        assert store.synced


class TestServed:
    def test_not_served(self) -> None:
        for what, group in {
            "without consent": group_of(autoscaling=None),
            "paused": group_of(paused=True),
            "deleting": group_of(deleting=True),
            "another label": group_of(labels={"team": "b"}),
            "no label": group_of(),
        }.items():
            team = {} if "label" in what else {"team": "a"}
            group = replace(group, labels={**group.labels, **team})
            store = store_of(group, selector=Selector((Discovery(labels={"team": "a"}),)))
            store.put_node(node_of(group, 0))
            assert store.served("web") is None, what
            assert list(store.all_served()) == []
            assert owner(store, f"kwok:{group.names.name(0)}") is None
            assert store.known("web") is group
        assert store_of(group_of(autoscaling={})).served("web"), "an empty consent is one"

    def test_labels_are_alternatives_of_sets(self) -> None:
        wanted = ({"team": "a", "stage": "test"}, {"team": "b"})
        selector = Selector(tuple(Discovery(labels=labels) for labels in wanted))
        groups = [
            group_of("a", labels={"team": "a", "stage": "test", "more": "x"}),
            group_of("b", labels={"team": "b"}),
            group_of("c", labels={"team": "a"}),
            group_of("d"),
        ]
        store = store_of(*reversed(groups), selector=selector)
        assert [group.name for group in store.all_served()] == ["a", "b"]
