"""Machines and MachineSets as they are written, and when something is to be written at all."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.api.cloud import ErrorClass
from kwok_operator.cloud.states import Fault, Phase, State
from kwok_operator.clusterapi.keys import DEPLOYMENT_NAME, REVISION, SET_NAME, Keys
from kwok_operator.clusterapi.machines import (
    EmulationTerms,
    FailureStyle,
    MachineCounts,
    Owner,
    Shown,
    has_selector,
    machine_labels,
    machine_manifest,
    machine_set,
    machine_set_name,
    scalable_status,
    selector_text,
    selects,
    show_leaving,
    show_node,
    show_waiting,
    status_patch,
)
from kwok_operator.clusterapi.objectstores import MachineRecord
from kwok_operator.clusterapi.projection import Projection, default_replicas, project
from kwok_operator.clusterapi.scalable import Scalable, read_scalable
from kwok_operator.constants import INSTANCE_FINALIZER
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.nodegroups.nodecache import NodeRecord
from tests.scalables import NAMES, instances, named

KEYS = Keys()
NOW = "2026-01-02T03:04:05Z"
FAULT = Fault(ErrorClass.OUT_OF_RESOURCES, "SoldOut", "there are none left")
FAILED = Phase(State.FAILED, 0, None, "SoldOut", FAULT, 1)


def scalable(
    kind: str = "MachineDeployment", uid: str = "u1", name: str = "pool", **spec: Any
) -> Scalable:
    template = {"metadata": {"labels": {"team": "a"}}}
    given_spec = {"clusterName": "c", "replicas": 3, "template": template, **spec}
    metadata = {"name": name, "namespace": "ns", "uid": uid}
    return read_scalable({"kind": kind, "metadata": metadata, "spec": given_spec}, KEYS)


def terms(version: str = "v1beta2") -> EmulationTerms:
    return EmulationTerms(KEYS, version, FailureStyle.V1BETA2, "kwok:")


class TestManifests:
    def test_a_machine_has_the_labels_and_owner_that_find_it(self) -> None:
        of = scalable(selector={"matchLabels": {"pool": "x"}})
        body = machine_manifest(
            "pool-1",
            of,
            terms(),
            owner=Owner("pool-abcd", "set-uid"),
            group="ns.pool",
            group_uid="g",
        )
        labels = body["metadata"]["labels"]
        expected = {
            "team": "a",
            "pool": "x",
            "cluster.x-k8s.io/cluster-name": "c",
            DEPLOYMENT_NAME: "pool",
            SET_NAME: "pool-abcd",
        }
        assert expected.items() <= labels.items()
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == (
            "MachineSet",
            "pool-abcd",
            "set-uid",
        )
        assert body["spec"] == {"clusterName": "c", "providerID": "kwok:pool-1"}

    def test_keys_move_with_the_group_and_some_do_not(self) -> None:
        labels = machine_labels(scalable(), Keys("example.com"), machine_set="s")
        assert {"example.com/cluster-name", DEPLOYMENT_NAME, SET_NAME} <= labels.keys()

    def test_a_machine_set_of_its_own_names_no_deployment(self) -> None:
        assert DEPLOYMENT_NAME not in machine_labels(scalable("MachineSet"), KEYS, machine_set="s")

    def test_the_machine_set_of_a_deployment(self) -> None:
        body = machine_set(scalable(), terms("v1beta1"), group_uid="g")
        metadata = body["metadata"]
        assert metadata["annotations"][REVISION] == "1"
        assert metadata["labels"][DEPLOYMENT_NAME] == "pool"
        assert metadata["ownerReferences"][0]["uid"] == "u1"
        assert (body["spec"]["replicas"], body["apiVersion"]) == (3, "cluster.x-k8s.io/v1beta1")
        again = machine_set_name(scalable(uid="u2"))
        assert metadata["name"] != again and len(again) < 63
        for cut in (f"{'x' * 57}.{'x' * 5}", "x" * 63):
            name = machine_set_name(scalable(name=cut))
            assert is_object_name(name) and len(name) <= 63

    def test_a_selector_in_one_line(self) -> None:
        of = scalable(selector={"matchLabels": {"b": "2", "a": "1", "c": 3}})
        assert selector_text(of, KEYS) == "a=1,b=2"

    @pytest.mark.parametrize("empty", [None, {}, {"matchLabels": None}, {"matchLabels": {}}])
    def test_an_empty_selector_is_the_webhooks_default(self, empty: Any) -> None:
        of = scalable(selector=empty)
        assert not has_selector(of)
        expected = "cluster.x-k8s.io/cluster-name=c,cluster.x-k8s.io/deployment-name=pool"
        assert selector_text(of, KEYS) == expected, "and not the Machines of all"

    def test_a_selector_by_expressions(self) -> None:
        rules = [
            {"key": "pool", "operator": "In", "values": ["y", "x"]},
            {"key": "pool", "operator": "NotIn", "values": ["z"]},
            {"key": "tier", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist"},
            {"operator": "In"},
            "odd",
        ]
        of = scalable(selector={"matchLabels": {"a": "1"}, "matchExpressions": rules})
        assert selector_text(of, KEYS) == "a=1,pool in (x,y),pool notin (z),tier,!old"
        good = {"a": "1", "pool": "x", "tier": ""}
        assert selects(of, KEYS, good)
        wrong: list[dict[str, str]] = [{"a": "2"}, {"pool": "z"}, {"old": ""}]
        assert not any(selects(of, KEYS, good | each) for each in wrong)
        assert not selects(of, KEYS, {"a": "1", "pool": "x"})
        found = machine_set(of, terms(), group_uid="g")["spec"]["selector"]
        assert found == of.spec["selector"]


class TestStatus:
    @pytest.mark.parametrize(
        "shown",
        [
            show_node("n", ready=True),
            show_node("n", ready=False),
            show_leaving("n"),
            show_waiting(FAILED, style=FailureStyle.V1BETA1),
            show_waiting(FAILED, style=FailureStyle.V1BETA2),
            show_waiting(Phase(State.CREATING, 0, 9, "Delayed"), style=FailureStyle.V1BETA2),
            show_waiting(Phase(State.UNREGISTERED, 0, None, "x"), style=FailureStyle.V1BETA2),
        ],
    )
    def test_a_written_status_reads_back_as_shown(self, shown: Shown) -> None:
        status = status_patch(shown, node_uid="u", now=NOW)["status"]
        assert Shown.read(status) == shown
        # As the API server keeps it: what is null is away.
        assert Shown.read({k: v for k, v in status.items() if v is not None}) == shown

    def test_failures_in_the_style_of_either_version(self) -> None:
        old = status_patch(show_waiting(FAILED, style=FailureStyle.V1BETA1), node_uid="", now=NOW)[
            "status"
        ]
        assert (old["phase"], old["failureMessage"]) == ("Failed", FAULT.message)
        new = status_patch(show_waiting(FAILED, style=FailureStyle.V1BETA2), node_uid="", now=NOW)[
            "status"
        ]
        assert (new["phase"], new["failureMessage"]) == ("Provisioning", None)
        assert new["conditions"][0]["reason"] == FAULT.code

    @given(
        st.dictionaries(
            st.sampled_from(["phase", "nodeRef", "conditions", "failureMessage"]),
            st.recursive(
                st.none() | st.integers() | st.text(max_size=3),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(
                        st.sampled_from(["type", "name", "status"]), inner, max_size=2
                    )
                ),
                max_leaves=5,
            ),
        )
    )
    def test_any_status_can_be_read(self, status: dict[str, Any]) -> None:
        assert isinstance(Shown.read(status), Shown)

    def test_counts_are_the_same_while_nothing_changes(self) -> None:
        wanted = {"wanted": 3, "generation": 7, "selector": "a=b"}
        first = scalable_status(MachineCounts(3, 3, 2), before={}, now=NOW, **wanted)  # type: ignore[arg-type]
        again = scalable_status(MachineCounts(3, 3, 2), before=first, now="later", **wanted)  # type: ignore[arg-type]
        assert first == again
        full = scalable_status(MachineCounts(3, 3, 3), before=first, now="later", **wanted)  # type: ignore[arg-type]
        times = {c["type"]: c["lastTransitionTime"] for c in full["conditions"]}
        assert times == {"Available": "later", "ScalingUp": NOW, "ScalingDown": NOW}
        assert (full["replicas"], full["availableReplicas"], full["phase"]) == (3, 3, "Running")


def machine(
    shown: Shown | None = None,
    *,
    owners: tuple[str, ...] = ("set",),
    labels: Mapping[str, str] | None = None,
    deleting: bool = False,
) -> MachineRecord:
    """One that is being deleted is kept by our finalizer."""
    return MachineRecord(
        namespace="ns",
        name="pool-x",
        uid="machine-uid",
        resource_version=1,
        group="pool",
        group_uid="uid",
        deleting=deleting,
        finalizers=(INSTANCE_FINALIZER,) if deleting else (),
        annotated=False,
        owners=owners,
        labels={"a": "b"} if labels is None else labels,
        shown=shown or Shown(),
    )


def node(serial: int) -> NodeRecord:
    return NodeRecord(
        name=NAMES.name(serial),
        uid="node-uid",
        resource_version=1,
        group="pool",
        owner="uid",
        serial=serial,
        template_hash="",
        ready=True,
        deleting=False,
        held=False,
        endpoint=None,
    )


def projected(
    present: set[int], machines: Mapping[int, MachineRecord], *, waiting: int = 0, **given_in: Any
) -> Projection:
    how: dict[str, Any] = {
        "nodes": {serial: node(serial) for serial in present},
        "leaving": {},
        "phases": {},
        "deleted": set(),
        "labels": {"a": "b"},
        "owner_uid": "set",
        "style": FailureStyle.V1BETA2,
    }
    going = given_in.pop("going", None)
    return project(
        instances(present=present, waiting=waiting, named=going),
        {NAMES.name(serial): record for serial, record in machines.items()},
        **how | given_in,
    )


class TestProjection:
    @given(st.sets(st.integers(0, 9)), st.integers(0, 3), st.sets(st.integers(0, 12)))
    def test_one_machine_for_each_instance(
        self, present: set[int], waiting: int, there: set[int]
    ) -> None:
        first = max(present, default=-1) + 1
        alive = {*present, *range(first, first + waiting)}
        found = projected(present, dict.fromkeys(there, machine()), waiting=waiting)
        assert {*found.create} == named(*(alive - there))
        assert {*found.delete} == named(*(there - alive))
        assert not found.relabel

    def test_a_node_is_shown_once(self) -> None:
        (name,) = named(1)
        shown, uid = projected({1}, {1: machine()}).show[name]
        assert (shown.phase, shown.node, uid) == ("Running", name, "node-uid")
        assert not projected({1}, {1: machine(shown)}).show

    def test_a_node_that_comes_at_once_is_waited_for(self) -> None:
        assert not projected(set(), {0: machine()}, waiting=1).show
        failed = projected(set(), {0: machine()}, waiting=1, phases={0: FAILED})
        assert [shown.reason for shown, _ in failed.show.values()] == [FAULT.code]

    def test_deleted_instances_get_no_machine_and_no_status(self) -> None:
        found = projected({1, 2}, {1: machine()}, going={1, 2})
        assert (found.create, found.delete, found.show) == ((), (), {})

    def test_a_deleted_machine_does_not_come_back(self) -> None:
        assert projected({1}, {}, deleted=named(1)).create == ()
        assert projected(set(), {}, waiting=1, deleted=named(0)).create == ()
        lost = projected({1}, {1: machine(owners=("other",))}, deleted=named(1))
        assert (lost.relabel, lost.show) == ((), {})

    def test_a_slow_deletion_is_shown(self) -> None:
        leaving = {1: node(1)}
        first = projected(set(), {1: machine()}, leaving=leaving)
        assert ({*first.end}, len(first.show)) == ({*named(1)}, 0)
        then = projected(set(), {1: machine(deleting=True)}, leaving=leaving)
        assert [shown.phase for shown, _ in then.show.values()] == ["Deleting"]
        assert (then.end, then.delete) == ((), ())
        assert {*projected(set(), {1: machine(deleting=True)}).delete} == named(1)
        assert projected(set(), {}, leaving=leaving).create == ()

    def test_labels_and_owner_are_put_back_and_other_labels_stay(self) -> None:
        shown = show_node(NAMES.name(1), ready=True)
        good = machine(shown, labels={"a": "b", "theirs": "x"})
        assert projected({1}, {1: good}).relabel == ()
        for bad in (machine(shown, labels={}), machine(shown, owners=())):
            assert {*projected({1}, {1: bad}).relabel} == named(1)


@pytest.mark.parametrize(
    ("least", "most", "before", "replicas"),
    [
        ("2", "5", None, 2),
        ("2", "5", 9, 5),
        ("2", "5", 1, 2),
        ("2", "5", 3, 3),
        (None, "5", None, 1),
        ("2", None, 7, 1),
        (None, None, None, 1),
        ("two", "5", None, 1),
        ("-1", "5", None, 1),
    ],
)
def test_replicas_that_nobody_has_set(
    least: str | None, most: str | None, before: int | None, replicas: int
) -> None:
    annotations = {KEYS.min_size: least, KEYS.max_size: most}
    metadata = {
        "name": "a",
        "namespace": "b",
        "annotations": {k: v for k, v in annotations.items() if v is not None},
    }
    of = read_scalable({"kind": "MachineDeployment", "metadata": metadata}, KEYS)
    assert default_replicas(of, KEYS, before=before) == replicas
