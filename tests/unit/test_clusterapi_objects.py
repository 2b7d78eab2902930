"""Machines and MachineDeployments as the watches bring them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kwok_operator import constants
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.machinewriter import is_ours
from kwok_operator.clusterapi.objectstores import (
    MachineRecord,
    MachineStore,
    ScalableStore,
    machine_record,
    scalable_record,
)
from kwok_operator.nodegroups.naming import NodeNames

KEYS = Keys()
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)
METADATA = ["name", "namespace", "uid", "resourceVersion", "labels", "annotations"]
METADATA += ["ownerReferences", "deletionTimestamp", "generation"]


def machine(
    name: str = "m", *, uid: str = "u", version: int = 1, phase: str = "", group: str = "g"
) -> MachineRecord:
    metadata = {
        "name": name,
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {constants.NODE_GROUP_LABEL: group},
    }
    return machine_record({"metadata": metadata, "status": {"phase": phase}}, KEYS)


class Findings:
    """A store, and what it has told."""

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.store = MachineStore(
            changed=self.changed.append,
            lost=lambda group, name: self.lost.append((group, name)),
            restored=lambda group, name: self.lost.remove((group, name)),
        )

    @property
    def phases(self) -> dict[str, str]:
        return {name: record.shown.phase for name, record in self.store.group("g").items()}


def test_late_news_change_nothing() -> None:
    told = Findings()
    told.store.upsert(machine(version=5, phase="Running"))
    told.store.upsert(machine(version=4, phase="Pending"))
    assert told.phases == {"m": "Running"}
    told.store.remove(machine(version=6))
    told.store.upsert(machine(version=5, phase="Running"))
    told.store.remove(machine(version=6))
    assert (told.phases, told.lost) == ({}, [("g", "m")])


def test_another_of_the_same_name_is_another() -> None:
    told = Findings()
    told.store.upsert(machine(version=1))
    told.store.upsert(machine(version=3, uid="v", phase="Running"))
    told.store.remove(machine(version=2))
    assert (told.phases, told.lost) == ({"m": "Running"}, [])


def test_a_change_that_does_not_matter_is_not_reported() -> None:
    told = Findings()
    told.store.upsert(machine(version=1))
    told.store.upsert(machine(version=2))
    assert told.changed == ["g"]


def test_a_listing_finds_what_was_lost_and_keeps_what_is_newer() -> None:
    told = Findings()
    told.store.upsert(machine("a", uid="1", version=1))
    told.store.upsert(machine("b", uid="2", version=9))
    told.store.replace([machine("c", uid="3", version=3)], 5)
    assert (sorted(told.phases), told.lost) == (["b", "c"], [("g", "a")])


def test_a_restored_cluster_has_lost_nothing() -> None:
    told = Findings()
    told.store.upsert(machine("a", uid="1", version=7))
    told.store.forget()
    told.store.replace([machine("a", uid="1", version=2, phase="Running")], 3)
    assert (told.phases, told.lost) == ({"a": "Running"}, [])


def test_a_listing_brings_back_what_was_gone_or_went_and_is_older_than_what_was_known() -> None:
    # A restored cluster whose versions have passed those that were known can't be told from others.
    told = Findings()
    records = [machine(name, uid=name, version=version) for name, version in (("a", 2), ("b", 2))]
    for record in (*records, machine("c", uid="c", version=8, phase="Running")):
        told.store.upsert(record)
    told.store.deleted(records[0])
    told.store.remove(records[1])
    before = [machine(name, uid=name, version=2, phase="Pending") for name in "abc"]
    assert told.lost == [("g", "b")]
    told.store.replace(before, 9)
    assert told.lost == []
    assert told.phases == dict.fromkeys("abc", "Pending")
    assert not any(record.deleting for record in told.store.group("g").values())


def test_a_deletion_of_ours_is_final() -> None:
    told = Findings()
    record = machine(version=1)
    told.store.upsert(record)
    told.store.deleted(record)
    told.store.upsert(machine(version=2))
    assert [r.deleting for r in told.store.group("g").values()] == [True]


def test_a_machine_is_ours_by_its_name() -> None:
    names = NodeNames.of("g", "uid-of-g")
    ours, theirs = machine(names.name(3)), machine("anything")
    ours.group_uid = theirs.group_uid = "uid-of-g"
    unmarked = machine(names.name(3))
    assert (is_ours(ours), is_ours(theirs), is_ours(unmarked)) == (True, False, False)


@given(st.dictionaries(st.sampled_from(METADATA), JUNK), JUNK)
def test_anything_can_be_read(metadata: dict[str, Any], status: Any) -> None:
    body = {"kind": "MachineSet", "metadata": metadata, "spec": status, "status": status}
    machine_record(body, KEYS)
    scalable_record(body, KEYS)


def test_a_deleted_scalable_is_reported_also_after_a_restore_and_late_events_are_not() -> None:
    seen: list[str] = []
    store = ScalableStore(changed=lambda scalable: seen.append(scalable.name))

    def played(version: int, uid: str = "u") -> Any:
        metadata = {"name": "d", "namespace": "n", "uid": uid, "resourceVersion": str(version)}
        return scalable_record({"kind": "MachineDeployment", "metadata": metadata}, KEYS)

    store.upsert(played(3))
    store.upsert(played(2))
    store.remove(played(4, uid="another"))
    assert store.get("n", "d") is not None and seen == ["d"]
    store.replace([], 2)
    assert store.get("n", "d") is not None, "it is newer than the list"
    store.forget()
    seen.clear()
    store.replace([], 2)
    assert store.get("n", "d") is None and seen == ["d"]
