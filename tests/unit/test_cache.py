"""The nodes that carry our label, as the watch and our own writes tell of them."""

import dataclasses
import json
from typing import Any

import pytest

from kwok_operator import constants
from kwok_operator.cloud.annotations import mark_on
from kwok_operator.cloud.step import read_mark
from kwok_operator.kube.decode import NODES, NodeView
from kwok_operator.nodegroups.api.template import Network
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.network import NodeNetwork
from kwok_operator.nodegroups.nodecache import UNHEARD_OF, NodeCache, NodeRecord, record_of
from kwok_operator.nodegroups.template import KubeletEndpoint

UID = "group-uid"
NAMES = NodeNames.of("web", UID)
ENDPOINT = (("Hostname", "localhost"),)
OURS = {constants.NODE_GROUP_UID_ANNOTATION: UID}
LABELS = {constants.NODE_GROUP_LABEL: "web"}


def node(name: str = "web-1", *, group: str = "web", version: int = 1, **fields: Any) -> NodeRecord:
    """A node of ours, not ready yet."""
    view = NodeView(
        name=name,
        uid=f"uid-of-{name}",
        resource_version=version,
        created=0.0,
        labels={constants.NODE_GROUP_LABEL: group} if group else {},
        annotations=OURS,
        owner_uids=(UID,),
        finalizers=(),
        deleting=False,
        ready=False,
        addresses=(),
        kubelet_port=0,
        provider_id="",
    )
    return record_of(dataclasses.replace(view, **fields), read_mark)


def ready(name: str = "web-1", *, version: int = 2, port: int = 10247, **fields: Any) -> NodeRecord:
    """The same, initialised by kwok."""
    return node(name, version=version, ready=True, addresses=ENDPOINT, kubelet_port=port, **fields)


def marked(*, version: int = 2, **fields: Any) -> NodeRecord:
    """The same, kept from being Ready."""
    labels = LABELS | {constants.HOLD_LABEL: constants.HOLD_LABEL_VALUE}
    annotations = OURS | {constants.SHOWN_ANNOTATION: "NotReady/Booting"}
    return node(version=version, labels=labels, annotations=annotations, **fields)


class World:
    """A cache, and what it called."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.endpoints: list[tuple[str, int, bool]] = []
        self.cache = NodeCache(changed=self.woken.append, initialised=self._initialised)

    def _initialised(
        self, name: str, endpoint: KubeletEndpoint, *, group: str, first_sight: bool
    ) -> None:
        assert name.startswith(f"{group}-")
        self.endpoints.append((name, endpoint.port, first_sight))

    def since(self) -> list[str]:
        """Who was woken since this was asked last."""
        woken = sorted(self.woken)
        self.woken.clear()
        return woken

    def names(self, group: str = "web") -> set[str]:
        return set(self.cache.group(group))

    @property
    def state(self) -> tuple[str, bool, bool]:
        """The node's uid, and whether it is Ready and on its way out."""
        record = self.cache.group("web")["web-1"]
        return record.uid, record.ready, record.deleting


@pytest.fixture
def world() -> World:
    return World()


def test_a_node_is_found_by_group_and_name(world: World) -> None:
    for each in (node("web-1"), node("web-2"), node("gpu-1", group="gpu")):
        world.cache.upsert(each)
    assert (world.names(), world.names("gpu"), world.names("other")) == (
        {"web-1", "web-2"},
        {"gpu-1"},
        set(),
    )
    assert (len(world.cache), world.cache.count("web"), world.cache.count("other")) == (3, 2, 0)
    world.cache.upsert(node("web-2", version=2, deleting=True))
    assert (len(world.cache), world.cache.count("web")) == (3, 1), "a leaving one is not counted"
    world.since()
    world.cache.upsert(node("web-1", group="gpu", version=2))
    assert (world.names("gpu"), world.since()) == ({"gpu-1", "web-1"}, ["gpu", "web"])


def test_what_is_kept_of_a_node() -> None:
    metadata = {
        "name": "web-1",
        "uid": "uid-of-web-1",
        "resourceVersion": "7",
        "labels": LABELS,
        "annotations": OURS | {constants.TEMPLATE_HASH_ANNOTATION: "abcdef0123"},
        "ownerReferences": [{"uid": UID}],
    }
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "Hostname", "address": "localhost"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10247}},
    }
    body = json.dumps({"metadata": metadata, "status": status}).encode()
    record = NODES.then(record_of).one(body)
    assert (record.name, record.uid, record.resource_version) == ("web-1", "uid-of-web-1", 7)
    assert (record.group, record.owner, record.template_hash) == ("web", UID, "abcdef0123")
    assert (record.ready, record.deleting, record.held) == (True, False, False)
    assert record.endpoint == KubeletEndpoint(ENDPOINT, 10247)


def test_it_is_whose_annotation_and_owner_reference_agree_on() -> None:
    for claimed, owners, owner in [
        (UID, (UID,), UID),
        (UID, ("other", UID), UID),
        (UID, (), ""),
        (UID, ("other",), ""),
        ("", (UID,), ""),
        ("other", (UID,), ""),
    ]:
        annotations = {constants.NODE_GROUP_UID_ANNOTATION: claimed} if claimed else {}
        assert node(annotations=annotations, owner_uids=owners).owner == owner, (claimed, owners)


def test_its_serial_is_the_one_that_its_owner_gave_it() -> None:
    another = NodeNames.of("web", "other").name(7)
    for name, owner, serial in [
        (NAMES.name(7), UID, 7),
        (NodeNames.of("gpu", UID).name(7), UID, None),
        (another, UID, None),
        (another, "other", 7),
        ("web-1", UID, None),
        (NAMES.name(7), "", None),
    ]:
        annotations = {constants.NODE_GROUP_UID_ANNOTATION: owner}
        owners = (owner,) if owner else ()
        assert node(name, annotations=annotations, owner_uids=owners).serial == serial, name


def test_whether_it_is_held_and_has_an_endpoint() -> None:
    for fields, held in [
        ({"finalizers": ("f",)}, False),
        ({"deleting": True}, False),
        ({"deleting": True, "finalizers": ("f",)}, True),
    ]:
        assert node(**fields).held is held, fields  # type: ignore[arg-type]
    # A kwok that serves no kubelet API writes neither part of it, and answers a scout all the same.
    for some in ({}, {"addresses": ENDPOINT}, {"kubelet_port": 10247}):
        assert node(ready=True, **some).endpoint is not None
    assert node(ready=False, addresses=ENDPOINT, kubelet_port=10247).endpoint is None


class TestOurOwnWrites:
    def test_a_created_node_is_there_at_once_whatever_the_watch_has_told(
        self, world: World
    ) -> None:
        world.cache.created("web", node())
        assert world.names() == {"web-1"}
        world.cache.upsert(ready(version=5))
        world.cache.created("web", node(version=1))
        assert world.state == ("uid-of-web-1", True, False), "it had told sooner"
        world.cache.remove(node(version=6))
        world.cache.created("web", node(version=1))
        assert world.names() == set(), "even of its end"

    @pytest.mark.parametrize("end_was_heard_of", [False, True])
    def test_it_replaces_somebody_elses(self, world: World, end_was_heard_of: bool) -> None:
        # Else the planner would take it for one that was there and vanished, and ask for another.
        world.cache.upsert(node(uid="before", owner_uids=(), version=1))
        if end_was_heard_of:
            world.cache.remove(node(uid="before", owner_uids=(), version=2))
        world.cache.created("web", node(version=5))
        assert world.state[0] == "uid-of-web-1"

    def test_a_deleted_node_is_on_its_way_out_or_gone_at_once(self, world: World) -> None:
        world.cache.upsert(node())
        world.since()
        world.cache.deleted("web-1")
        assert (world.state[2], world.cache.count("web")) == (True, 0)
        assert world.since() == [], "whoever writes looks again anyway"
        world.cache.deleted("web-1", gone=True)
        assert (len(world.cache), world.since()) == (0, ["web"])
        for gone in (False, True):
            world.cache.deleted("web-1", gone=gone)
        assert (len(world.cache), world.since()) == (0, [])

    @pytest.mark.parametrize("is_ready", [True, False])
    def test_a_patched_node_is_known_at_once(self, world: World, is_ready: bool) -> None:
        world.cache.upsert(node(version=2, ready=not is_ready))
        world.since()
        world.cache.updated(marked(version=5), ready=is_ready)
        record = world.cache.group("web")["web-1"]
        assert (record.ready, record.mark) == (is_ready, marked().mark)
        world.cache.upsert(node(version=4, ready=not is_ready))
        assert record is world.cache.group("web")["web-1"], "from before the patch"
        world.cache.upsert(marked(version=5, ready=is_ready))
        assert world.cache.group("web")["web-1"].mark == marked().mark
        assert world.since() == [], "all of it was known"

    def test_a_late_or_silent_patch_leaves_readiness_as_it_was(self, world: World) -> None:
        world.cache.upsert(ready(version=2))
        world.cache.updated(marked(version=5))
        assert world.state[1] is True
        world.cache.upsert(ready(version=7))
        world.cache.updated(marked(version=6), ready=False)
        assert (world.state[1], world.cache.group("web")["web-1"].mark) == (True, None)

    def test_a_node_that_is_born_held_has_its_mark(self, world: World) -> None:
        world.cache.created("web", marked())
        mark = mark_on(world.cache.group("web")["web-1"].mark)
        assert mark is not None
        assert (mark.hold, mark.shown) == (True, "NotReady/Booting")


class TestLateEvents:
    def test_what_was_deleted_stays_on_its_way_out(self, world: World) -> None:
        world.cache.upsert(node(version=1))
        world.cache.deleted("web-1")
        world.cache.upsert(ready(version=2))
        assert world.state == ("uid-of-web-1", True, True)
        world.cache.upsert(node(uid="another", version=11))
        assert world.state == ("another", False, False), "of that name, after a crash or by hand"

    @pytest.mark.parametrize("group", ["web", "gpu"])
    def test_late_news_of_the_one_before_is_ignored(self, world: World, group: str) -> None:
        # Versions are those of the whole cluster: the older one is of the older node.
        world.cache.created("web", node(version=11))
        world.cache.upsert(node(uid="before", group=group, version=9))
        world.cache.remove(node(uid="before", group=group, version=10))
        assert world.state[0] == "uid-of-web-1"
        assert world.names("gpu") == set()

    def test_what_is_gone_is_gone_once_and_its_name_can_be_seen_again(self, world: World) -> None:
        world.cache.remove(node())
        assert world.since() == []
        world.cache.upsert(node())
        for woken in (["web"], []):
            world.since()
            world.cache.remove(node(version=2))
            assert (len(world.cache), world.since()) == (0, woken)
        world.cache.upsert(node(uid="another", version=3))
        assert world.names() == {"web-1"}


class TestListing:
    def test_it_is_the_truth_but_for_what_was_entered_since_it_was_made(self, world: World) -> None:
        world.cache.upsert(node("web-1"))
        world.cache.upsert(ready("web-2", version=12))
        world.cache.created("web", node("web-9", version=11))
        world.cache.replace([node("web-2", version=3), node("web-3")], 10)
        assert world.names() == {"web-2", "web-3", "web-9"}
        assert world.cache.group("web")["web-2"].ready is True

    def test_what_is_deleted_stays_on_its_way_out(self, world: World) -> None:
        world.cache.upsert(node(version=1))
        world.cache.deleted("web-1")
        world.cache.replace([node(version=1)], 10)
        assert world.state[2] is True

    def test_one_that_is_no_older_knows_better(self, world: World) -> None:
        # The cluster was restored, and others have written since.
        world.cache.upsert(ready(version=8))
        world.cache.deleted("web-1")
        listed = [node(version=3)]
        world.cache.page(listed)
        world.cache.replace(listed, 10)
        assert world.state[1:] == (False, False)

    def test_after_a_restore_nothing_is_newer(self, world: World) -> None:
        for name in ("web-1", "web-2", "web-3"):
            world.cache.upsert(ready(name, version=50))
        world.cache.deleted("web-1")
        world.cache.remove(node("web-3", version=51))
        world.cache.forget_versions()
        world.cache.page([node("web-1", version=3)])
        world.cache.created("web", node("web-3", version=11))
        world.cache.replace([node("web-1", version=3)], 10)
        kept = {name: (r.ready, r.deleting) for name, r in world.cache.group("web").items()}
        assert kept == {"web-1": (False, False), "web-3": (False, False)}

    def test_only_groups_with_a_change_are_woken(self, world: World) -> None:
        for group in ("same", "less", "more", "other"):
            world.cache.upsert(node(f"{group}-1", group=group))
        world.since()
        listed = [node(f"{group}-1", group=group) for group in ("same", "more")]
        listed += [node("more-2", group="more"), node("other-1", group="other", ready=True)]
        world.cache.replace(listed, 10)
        assert world.since() == ["less", "more", "other"]

    def test_after_its_pages_the_whole_tells_only_what_is_gone(self, world: World) -> None:
        world.cache.upsert(node("gone-1", group="gone"))
        records = [ready("web-1"), ready("web-2")]
        world.cache.page(records[:1])
        world.cache.page(records[1:])
        assert (world.names(), world.names("gone")) == ({"web-1", "web-2"}, {"gone-1"})
        world.cache.deleted("web-1")
        world.since()
        world.cache.replace(records, 10)
        assert (world.names(), world.state[2]) == ({"web-1", "web-2"}, True)
        assert (world.since(), len(world.endpoints)) == (["gone"], 2)


def test_what_may_need_an_answer_wakes_and_heartbeats_do_not(world: World) -> None:
    # kwok updates every node every few minutes: at 10,000 that would be a pass each moment.
    new = {"annotations": OURS | {constants.TEMPLATE_HASH_ANNOTATION: "new"}}
    news: list[dict[str, Any]] = [
        {"ready": True},
        {"deleting": True},
        {"deleting": True, "finalizers": ("f",)},
        {"owner_uids": ()},
        {"annotations": {}},
        {"not_ready_taint": True},
        {"unreachable_taint": True},
        new,
    ]
    no_news: list[dict[str, Any]] = [
        {},
        {"labels": LABELS | {"somebodys": "label"}},
        {"finalizers": ("f",)},
        {"owner_uids": (UID, "another")},
        {"addresses": ENDPOINT, "kubelet_port": 1},
        {"provider_id": "kwok:web-1"},
    ]
    for fields in [*news, *no_news]:
        world.cache.upsert(node(version=1))
        world.since()
        world.cache.upsert(node(version=2, **fields))
        assert world.since() == ["web"] * (fields in news), fields
        world.cache.remove(node(version=3))
    world.cache.upsert(node(version=4, deleting=True, finalizers=("f",)))
    world.since()
    world.cache.upsert(node(version=5, deleting=True))
    assert world.since() == ["web"], "a finalizer that is taken off a dying node"


class TestEndpoints:
    def test_one_that_is_new_is_told_once(self, world: World) -> None:
        world.cache.upsert(node(version=1))
        for version in range(2, 6):
            world.cache.upsert(ready(version=version))
        world.cache.created("web", ready(version=5))
        assert world.endpoints == [("web-1", 10247, False)]
        world.cache.upsert(ready(version=6, port=32769))
        assert world.endpoints[1:] == [("web-1", 32769, False)]

    def test_one_that_is_nobodys_or_not_ready_is_not_told(self, world: World) -> None:
        # A real node with our label has a real kubelet.
        world.cache.upsert(ready(owner_uids=()))
        world.cache.upsert(ready(owner_uids=(), version=3, port=32769))
        world.cache.upsert(node("web-2", addresses=ENDPOINT, kubelet_port=1))
        assert world.endpoints == []

    def test_it_is_not_kwok_that_answers_where_we_make_a_node_ready(self, world: World) -> None:
        given: dict[str, Any] = {"addresses": ENDPOINT, "kubelet_port": 10247}
        world.cache.upsert(marked(version=2, **given))
        world.cache.upsert(marked(version=3, ready=True, **given))
        assert world.endpoints == []
        world.cache.upsert(marked(version=4, **given))
        world.cache.upsert(marked(version=5, ready=True, addresses=ENDPOINT, kubelet_port=1))
        assert world.endpoints == [("web-1", 1, False)]

    def test_but_it_is_where_a_held_node_was_born_without_one(self, world: World) -> None:
        world.cache.upsert(marked(version=2))
        world.cache.upsert(ready(version=3))
        assert world.endpoints == [("web-1", 10247, False)]


def test_equal_endpoints_are_one_object() -> None:
    assert len({id(ready(f"web-{n}").endpoint) for n in range(3)}) == 1


def test_names_that_are_gone_are_forgotten_in_the_end(world: World) -> None:
    # An answer that is 10,000 removals late does not come.
    for n in range(10_001):
        world.cache.upsert(node(f"web-{n}"))
        world.cache.remove(node(f"web-{n}"))
    world.cache.created("web", node("web-10000"))
    world.cache.created("web", node("web-0"))
    assert world.names() == {"web-0"}


def test_a_node_that_was_not_made_gives_its_addresses_back_unless_it_is_there(
    world: World,
) -> None:
    network = NodeNetwork.of(Network.model_validate({"podCIDR": "10.0.0.0/24"}), group="web")
    assert network is not None
    world.cache.addresses.put("web-1", "10.0.0.0/24", "")
    world.cache.release("web-1")
    assert not world.cache.addresses.taken(network, 0, node="web-2")
    world.cache.addresses.put("web-1", "10.0.0.0/24", "")
    world.cache.upsert(node("web-1", pod_cidr="10.0.0.0/24"))
    world.cache.release("web-1")
    assert world.cache.addresses.taken(network, 0, node="web-2")


def test_addresses_of_a_node_that_nobody_hears_of_are_given_back(world: World) -> None:
    network = NodeNetwork.of(Network.model_validate({"podCIDR": "10.0.0.0/24"}), group="web")
    assert network is not None

    def lost(name: str, *, at: float) -> None:
        assert world.cache.claim(network, name, 0)
        world.cache.unheard_of(name, now=at)

    lost("web-1", at=1.0)
    world.cache.release_unheard_of(now=UNHEARD_OF)
    assert not world.cache.claim(network, "web-2", 0)
    world.cache.release_unheard_of(now=UNHEARD_OF + 1)
    lost("web-2", at=0.0)
    assert world.cache.claim(network, "web-2", 0)
    world.cache.release_unheard_of(now=UNHEARD_OF)
    assert not world.cache.claim(network, "web-3", 0)
    lost("web-2", at=0.0)
    world.cache.upsert(node("web-2", pod_cidr="10.0.0.0/24"))
    world.cache.release_unheard_of(now=UNHEARD_OF)
    assert not world.cache.claim(network, "web-3", 0)
    world.cache.remove(node("web-2", version=2, pod_cidr="10.0.0.0/24"))
    assert world.cache.claim(network, "web-3", 0)
