"""The groups that exist, and those that existed until a moment ago."""

import dataclasses
from typing import Any

import pytest
from pydantic import ValidationError

from kwok_operator.companions.desired import adds_companions, asks_for_companions
from kwok_operator.companions.step import with_empty_csi_node
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.client import Group, UnreadableGroup
from kwok_operator.nodegroups.groupstore import RETIRED_FOR, GroupStore, Retired
from tests.fakes.recording import Clock


def body(name: str = "web", *, uid: str = "u-1", version: int = 1, **parts: Any) -> dict[str, Any]:
    """A group as the API server has it."""
    metadata = {"name": name, "uid": uid, "resourceVersion": str(version), "generation": 1}
    return {"metadata": metadata | parts.pop("metadata", {}), **parts}


def group(name: str = "web", **fields: Any) -> Group:
    return Group.parse(body(name, **fields))


@pytest.fixture
def store(clock: Clock) -> GroupStore:
    return GroupStore(clock=clock)


def test_each_node_has_a_csi_node_where_the_store_is_told_so(store: GroupStore) -> None:
    copied = {"from": {"nodes": {"name": "a", "companions": True}}}
    given = {"companions": {"csiNode": {"drivers": [{"name": "a.b"}]}}}
    for template in ({}, copied, given):
        store.complete = lambda group: group
        store.put(group(version=store.newest + 1, spec={"template": template}))
        (before,) = [g.spec.template for g in [store.get("web")] if g]
        store.complete = with_empty_csi_node
        store.put(group(version=store.newest + 1, spec={"template": template}))
        (after,) = [g.spec.template for g in [store.get("web")] if g]
        assert (after == before) is bool(template), "its own, or a real node's, stays"
        assert asks_for_companions(after)
        assert adds_companions(after) is bool(template)


class TestParse:
    def test_everything(self) -> None:
        seen = Group.parse(
            {
                "metadata": {
                    "name": "web",
                    "uid": "u-1",
                    "generation": 3,
                    "resourceVersion": "42",
                    "deletionTimestamp": "2026-01-02T03:04:05Z",
                    "finalizers": ["foregroundDeletion", "orphan"],
                },
                "spec": {"targetSize": 5},
                "status": {"nextSerial": 7},
            }
        )
        assert (seen.name, seen.uid, seen.generation, seen.resource_version) == (
            "web",
            "u-1",
            3,
            42,
        )
        assert (seen.deleting, seen.orphaning) == (True, True)
        assert (seen.spec.target_size, seen.status.next_serial) == (5, 7)

    def test_next_to_nothing(self) -> None:
        seen = Group.parse({"metadata": {"name": "web", "uid": "u-1"}})
        assert (seen.generation, seen.resource_version) == (0, 0)
        assert (seen.deleting, seen.orphaning) == (False, False)
        assert (seen.spec, seen.status) == (KwokNodeGroupSpec(), KwokNodeGroupStatus())

    def test_another_finalizer_is_not_orphaning(self) -> None:
        assert not group(metadata={"finalizers": ["foregroundDeletion"]}).orphaning
        assert not group(metadata={"finalizers": None}).orphaning

    @pytest.mark.parametrize(
        "odd",
        [{}, {"metadata": {"name": "web"}}, {"metadata": {"uid": "u-1"}}, body(spec={"paused": 7})],
        ids=str,
    )
    def test_what_is_no_group_is_an_error(self, odd: dict[str, Any]) -> None:
        with pytest.raises((KeyError, ValidationError)):
            Group.parse(odd)


class TestPut:
    def test_the_newest_sight_of_each_counts_and_only_that_is_news(self, store: GroupStore) -> None:
        assert store.put(group(version=4))
        assert store.put(group(version=5))
        for version in (5, 4, 1):
            assert not store.put(group(version=version))
        assert store.put(group("gpu", uid="u-2", version=1))
        assert (store.get("web"), store.get("gpu")) == (
            group(version=5),
            group("gpu", uid="u-2", version=1),
        )
        assert (sorted(store.names()), len(store)) == (["gpu", "web"], 2)

    def test_another_uid_is_another_group(self, store: GroupStore, clock: Clock) -> None:
        # Deleted and made again at once: the end of the first may be heard of later, or never.
        store.put(group(uid="u-1", version=5))
        assert store.put(group(uid="u-2", version=6))
        assert not store.put(group(uid="u-1", version=7)), "late"
        assert store.get("web") == group(uid="u-2", version=6)
        assert store.retired("web") == [Retired("web", "u-1", False, clock.now)]

    def test_a_late_sight_of_an_orphan_is_ignored(self, store: GroupStore) -> None:
        store.put(group(uid="u-1", version=5, metadata={"finalizers": ["orphan"]}))
        store.remove(name="web", uid="u-1")
        store.put(group(uid="u-2", version=9))
        assert not store.put(group(uid="u-1", version=4))
        assert store.get("web") == group(uid="u-2", version=9)
        assert store.retired("web") == []


class TestRemove:
    def test_the_group_is_gone_remembered_and_does_not_come_back_by_a_late_event(
        self, store: GroupStore, clock: Clock
    ) -> None:
        store.put(group(version=5))
        store.remove(name="web", uid="u-1")
        assert not store.put(group(version=6))
        assert store.get("web") is None
        assert store.retired("web") == [Retired("web", "u-1", False, clock.now)]

    @pytest.mark.parametrize("living", [True, False])
    def test_the_end_of_another_uid_is_nothing(self, store: GroupStore, living: bool) -> None:
        if living:
            store.put(group(uid="u-2"))
        store.remove(name="web", uid="u-1")
        assert (store.get("web") is not None, store.retired("web")) == (living, [])

    def test_what_becomes_of_its_nodes_and_pods(self, store: GroupStore) -> None:
        """Orphaned they stay; forgotten it leaves them to the garbage collector."""
        store.put(group("a", spec={"scaleDown": {"pods": "Delete"}}))
        store.put(group("b", metadata={"finalizers": ["orphan"]}))
        store.put(group("c"))
        for name in "abc":
            store.remove(name=name, uid="u-1", retire=name != "c")
            assert store.get(name) is None
        assert [[r.delete_pods for r in store.retired(name)] for name in "abc"] == [[True], [], []]


def test_gone_ones_are_remembered_for_a_minute(store: GroupStore, clock: Clock) -> None:
    for n in range(3):
        store.put(group(uid=f"u-{n}", version=n))
        clock.now += 1
    store.put(group("gpu", uid="u-9"))
    store.remove(name="gpu", uid="u-9")
    assert [[r.uid for r in store.retired(name)] for name in ("web", "gpu")] == [
        ["u-0", "u-1"],
        ["u-9"],
    ]
    clock.now += RETIRED_FOR - 1.5
    assert [r.uid for r in store.retired("web")] == ["u-1"]
    assert len(store.retired("gpu")) == 1
    clock.now += 2
    assert store.retired("web") == []


class TestReplace:
    def test_a_listing_adds_the_missed_and_names_the_gone(self, store: GroupStore) -> None:
        store.put(group("web", uid="u-1", version=1))
        listed = [group("web", uid="u-1", version=3), group("gpu", uid="u-2")]
        assert store.replace(listed, version=99) == set()
        assert [store.get("web"), store.get("gpu")] == listed
        assert store.replace(listed[1:], version=100) == {"web"}
        assert store.names() == ["gpu"]
        assert [r.uid for r in store.retired("web")] == ["u-1"]
        assert (store.replace([], version=101), len(store)) == ({"gpu"}, 0)

    def test_it_tells_of_a_group_that_was_made_again(self, store: GroupStore) -> None:
        store.put(group(uid="u-1", version=1))
        assert store.replace([group(uid="u-2", version=9)], version=99) == set()
        assert store.get("web") == group(uid="u-2", version=9)
        assert [r.uid for r in store.retired("web")] == ["u-1"]

    def test_an_older_sight_in_an_older_one_changes_nothing(self, store: GroupStore) -> None:
        store.put(group(version=5))
        assert store.replace([group(version=3)], version=4) == set()
        assert store.get("web") == group(version=5)

    def test_one_that_is_no_older_knows_better(self, store: GroupStore) -> None:
        # The cluster was restored, and others have written since.
        store.put(group(version=5))
        store.put(group("gpu", uid="u-2", version=5))
        store.remove(name="gpu", uid="u-2", version=6)
        listed = [group(version=3), group("gpu", uid="u-2", version=2)]
        assert store.replace(listed, version=9) == set()
        assert [store.get("web"), store.get("gpu")] == listed
        assert store.retired("gpu") == []

    def test_after_a_restore_only_it_holds(self, store: GroupStore) -> None:
        store.put(group("kept", uid="u-1", version=50))
        store.put(group("made since", uid="u-2", version=60))
        store.put(group("deleted since", uid="u-3", version=8))
        store.remove(name="deleted since", uid="u-3", version=70)
        assert store.newest == 70
        listed = [group("kept", uid="u-1", version=7), group("deleted since", uid="u-3", version=8)]
        assert store.replace(listed, version=9, restored=True) == {"made since"}
        assert [store.get(name) for name in ("kept", "deleted since")] == listed
        assert store.names() == ["kept", "deleted since"]
        assert store.newest == 9
        # Its nodes are gone with it, and it may be another restore until it is back.
        assert [store.retired(name) for name in ("made since", "deleted since")] == [[], []]

    def test_what_can_not_be_read_is_neither_gone_nor_news(
        self, store: GroupStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.put(group(version=5))
        store.put(group("gpu", uid="u-2"))
        odd = UnreadableGroup("web", "u-1", 6, "spec.mode: Input should be 'a' or 'b'")
        for _ in range(3):
            assert store.put(odd) is False
            assert store.replace([odd], version=99) <= {"gpu"}
        assert store.get("web") == group(version=5)
        assert [r.getMessage() for r in caplog.records] == [
            "unreadable group, does the CRD fit? group=web error=" + odd.why
        ]
        store.put(group(version=7))
        store.put(dataclasses.replace(odd, resource_version=8))
        assert len(caplog.records) == 2

    @pytest.mark.parametrize("listed", [True, False])
    def test_an_unreadable_one_can_be_deleted(self, store: GroupStore, listed: bool) -> None:
        store.put(group(version=5))
        odd = UnreadableGroup("web", "u-1", 6, "why", deleting=True, orphaning=True)
        if listed:
            store.replace([odd], version=6)
        else:
            assert store.put(odd) is True
            assert store.put(odd) is False, "that is no news"
        known = store.get("web")
        assert known is not None and (known.deleting, known.orphaning) == (True, True)

    def test_an_unreadable_one_replaces_a_gone_one(self, store: GroupStore) -> None:
        store.put(group(version=5))
        assert store.replace([UnreadableGroup("web", "u-new", 20, "why")], version=21) == {"web"}
        assert store.get("web") is None
        assert [retired.uid for retired in store.retired("web")] == ["u-1"]

    def test_a_group_that_is_newer_than_the_listing_stays(self, store: GroupStore) -> None:
        # It was heard of between the server's answer and now: its nodes must not be deleted.
        store.put(group(version=12))
        assert store.replace([], version=11) == set()
        assert store.get("web") is not None


def test_a_group_can_not_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        group().name = "other"  # type: ignore[misc]


class TestGpuLabels:
    def test_of_those_that_set_one_and_may_be_driven(self, store: GroupStore) -> None:
        specs: dict[str, Any] = {
            "a": {"autoscaling": {"gpuLabel": "x"}},
            "b": {"autoscaling": {}},
            "c": {},
            "d": {"autoscaling": {"gpuLabel": "x"}, "paused": True},
        }
        for name, spec in specs.items():
            store.put(group(name, uid=name, spec=spec))
        leaving = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
        store.put(group("e", uid="e", metadata=leaving, spec=specs["a"]))
        assert store.gpu_labels == {"a": "x"}

    @pytest.mark.parametrize("end", ["removed", "not listed", "made again", "without", "paused"])
    def test_they_go(self, store: GroupStore, end: str) -> None:
        spec: dict[str, Any] = {"autoscaling": {"gpuLabel": "x"}}
        store.put(group(spec=spec))
        if end == "removed":
            store.remove(name="web", uid="u-1")
        elif end == "not listed":
            store.replace([], version=9)
        elif end == "made again":
            store.put(group(uid="u-2", version=2))
        else:
            new = {"autoscaling": {}} if end == "without" else spec | {"paused": True}
            store.put(group(version=2, spec=new))
        assert store.gpu_labels == {}


def test_a_group_that_is_seen_after_it_was_taken_for_gone_lives(store: GroupStore) -> None:
    store.put(group(uid="u-1", version=5))
    store.replace([], version=6)
    assert store.retired("web")
    assert not store.put(group(uid="u-1", version=5)), "late"
    assert store.put(group(uid="u-1", version=7))
    assert not store.retired("web")
