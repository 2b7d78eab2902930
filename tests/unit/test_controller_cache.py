"""The nodes that carry our label, as the watch and our own writes tell of them.

- what is kept of a node; whose it is needs annotation and ownerReference to agree
- our own writes are there at once; what the watch tells later, or told sooner, makes no difference
- late and repeated events: an older version changes nothing, "deleting" is never taken back, a name
  that is gone does not come back by our own late answer
- a full listing is the truth, but for what was entered after it was made; a page of it says nothing
  of the others; after a restore nothing that is known is newer than what is told
- the decoder makes the same records
- a group is woken when there may be something to do, and not by heartbeats
- a kubelet endpoint is told when a Ready node has it first, and whether at first sight
- memory: names that are gone are forgotten in the end, equal endpoints are one object
"""

import dataclasses
import json
from typing import Any

import pytest

from kwok_operator import constants
from kwok_operator.controller.observed.nodecache import RECORDS, NodeCache, NodeRecord, record_of
from kwok_operator.core.naming import NodeNames
from kwok_operator.core.template import KubeletEndpoint
from kwok_operator.kube.decode import NodeView

UID = "group-uid"
NAMES = NodeNames.of("web", UID)
ENDPOINT = (("Hostname", "localhost"),)


def node(name: str = "web-1", *, group: str = "web", version: int = 1, **fields: Any) -> NodeRecord:
    """A node of ours, not ready yet."""
    labels = {constants.NODE_GROUP_LABEL: group} if group else {}
    view = NodeView(
        name=name,
        uid=f"uid-of-{name}",
        resource_version=version,
        created=0.0,
        labels=labels,
        annotations={constants.NODE_GROUP_UID_ANNOTATION: UID},
        owner_uids=(UID,),
        finalizers=(),
        deleting=False,
        ready=False,
        addresses=(),
        kubelet_port=0,
        provider_id="",
    )
    return record_of(dataclasses.replace(view, **fields))


def ready(name: str = "web-1", *, version: int = 2, port: int = 10247, **fields: Any) -> NodeRecord:
    """The same, initialised by kwok."""
    return node(name, version=version, ready=True, addresses=ENDPOINT, kubelet_port=port, **fields)


def marked(*, version: int = 2, **fields: Any) -> NodeRecord:
    """The same, kept from being Ready."""
    labels = {constants.NODE_GROUP_LABEL: "web", constants.HOLD_LABEL: constants.HOLD_LABEL_VALUE}
    annotations = {
        constants.NODE_GROUP_UID_ANNOTATION: UID,
        constants.SHOWN_ANNOTATION: "NotReady/Booting",
    }
    return node(version=version, labels=labels, annotations=annotations, **fields)


class Told:
    """What a cache called."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.endpoints: list[tuple[str, int, bool]] = []

    def changed(self, group: str) -> None:
        self.woken.append(group)

    def initialised(self, name: str, endpoint: KubeletEndpoint, *, first_sight: bool) -> None:
        self.endpoints.append((name, endpoint.port, first_sight))

    def since(self) -> list[str]:
        woken, self.woken = self.woken, []
        return woken


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def cache(told: Told) -> NodeCache:
    return NodeCache(changed=told.changed, initialised=told.initialised)


class TestWhatIsKept:
    def test_a_node_is_found_by_group_and_name(self, cache: NodeCache) -> None:
        cache.upsert(node("web-1"))
        cache.upsert(node("web-2"))
        cache.upsert(node("gpu-1", group="gpu"))
        assert set(cache.group("web")) == {"web-1", "web-2"}
        assert set(cache.group("gpu")) == {"gpu-1"}
        assert cache.group("other") == {}
        assert len(cache) == 3

    def test_its_record(self, cache: NodeCache) -> None:
        cache.upsert(
            ready(
                version=7,
                annotations={
                    constants.NODE_GROUP_UID_ANNOTATION: UID,
                    constants.TEMPLATE_HASH_ANNOTATION: "abcdef0123",
                },
            )
        )
        record = cache.group("web")["web-1"]
        assert (record.name, record.uid, record.resource_version) == ("web-1", "uid-of-web-1", 7)
        assert (record.owner, record.template_hash) == (UID, "abcdef0123")
        assert (record.ready, record.deleting, record.held) == (True, False, False)
        assert record.endpoint == KubeletEndpoint(ENDPOINT, 10247)

    @pytest.mark.parametrize(
        ("claimed", "owners", "owner"),
        [
            (UID, (UID,), UID),
            (UID, ("other", UID), UID),
            (UID, (), ""),
            (UID, ("other",), ""),
            ("", (UID,), ""),
            ("other", (UID,), ""),
        ],
    )
    def test_it_is_whose_annotation_and_owner_reference_agree_on(
        self, cache: NodeCache, claimed: str, owners: tuple[str, ...], owner: str
    ) -> None:
        annotations = {constants.NODE_GROUP_UID_ANNOTATION: claimed} if claimed else {}
        cache.upsert(node(annotations=annotations, owner_uids=owners))
        assert cache.group("web")["web-1"].owner == owner

    @pytest.mark.parametrize(
        ("name", "owner", "serial"),
        [
            (NAMES.name(7), UID, 7),
            (NodeNames.of("gpu", UID).name(7), UID, None),
            (NodeNames.of("web", "other").name(7), UID, None),
            (NodeNames.of("web", "other").name(7), "other", 7),
            ("web-1", UID, None),
            (NAMES.name(7), "", None),
        ],
    )
    def test_its_serial_is_the_one_that_its_owner_gave_it(
        self, name: str, owner: str, serial: int | None
    ) -> None:
        annotations = {constants.NODE_GROUP_UID_ANNOTATION: owner}
        owners = (owner,) if owner else ()
        assert node(name, annotations=annotations, owner_uids=owners).serial == serial

    def test_the_decoder_makes_the_same_record(self, cache: NodeCache) -> None:
        body = json.dumps(
            {
                "metadata": {
                    "name": "web-1",
                    "uid": "uid-of-web-1",
                    "resourceVersion": "1",
                    "labels": {constants.NODE_GROUP_LABEL: "web"},
                    "annotations": {constants.NODE_GROUP_UID_ANNOTATION: UID},
                    "ownerReferences": [{"uid": UID}],
                }
            }
        ).encode()
        assert RECORDS.one(body) == node("web-1")
        cache.upsert(RECORDS.one(body))
        assert cache.group("web") == {"web-1": node("web-1")}

    @pytest.mark.parametrize(
        ("deleting", "finalizers", "held"),
        [(False, ("f",), False), (True, (), False), (True, ("f",), True)],
    )
    def test_it_is_held_if_a_finalizer_keeps_it_from_going(
        self, cache: NodeCache, deleting: bool, finalizers: tuple[str, ...], held: bool
    ) -> None:
        cache.upsert(node(deleting=deleting, finalizers=finalizers))
        assert cache.group("web")["web-1"].held is held

    @pytest.mark.parametrize(
        "fields", [{}, {"addresses": ENDPOINT}, {"kubelet_port": 10247}], ids=str
    )
    def test_a_ready_node_has_an_endpoint_however_little_is_in_it(
        self, cache: NodeCache, fields: dict[str, Any]
    ) -> None:
        # A kwok that serves no kubelet API writes neither, and answers a scout all the same.
        cache.upsert(node(ready=True, **fields))
        assert cache.group("web")["web-1"].endpoint is not None

    def test_a_node_that_is_not_ready_has_no_endpoint(self, cache: NodeCache) -> None:
        cache.upsert(node(ready=False, addresses=ENDPOINT, kubelet_port=10247))
        assert cache.group("web")["web-1"].endpoint is None

    def test_nodes_on_their_way_out_are_not_counted(self, cache: NodeCache) -> None:
        cache.upsert(node("web-1"))
        cache.upsert(node("web-2", deleting=True))
        assert cache.count("web") == 1
        assert cache.count("other") == 0

    def test_a_node_whose_label_changes_moves_to_the_other_group(
        self, cache: NodeCache, told: Told
    ) -> None:
        cache.upsert(node(version=1))
        told.since()
        cache.upsert(node(group="gpu", version=2))
        assert cache.group("web") == {}
        assert set(cache.group("gpu")) == {"web-1"}
        assert sorted(told.since()) == ["gpu", "web"]


class TestOurOwnWrites:
    def test_a_created_node_is_there_at_once(self, cache: NodeCache) -> None:
        cache.created("web", node())
        assert set(cache.group("web")) == {"web-1"}

    def test_the_watch_may_have_told_sooner(self, cache: NodeCache) -> None:
        cache.upsert(ready(version=5))
        cache.created("web", node(version=1))
        assert cache.group("web")["web-1"].ready is True

    def test_the_watch_may_even_have_told_of_its_end(self, cache: NodeCache) -> None:
        cache.upsert(node(version=1))
        cache.remove(node(version=2))
        cache.created("web", node(version=1))
        assert cache.group("web") == {}

    def test_it_takes_the_place_of_somebody_elses_whose_end_was_not_heard_of_yet(
        self, cache: NodeCache
    ) -> None:
        # Else the planner would take it for one that was there and vanished, and ask for another.
        cache.upsert(node(uid="before", owner_uids=(), version=1))
        cache.created("web", node(version=5))
        assert cache.group("web")["web-1"].uid == "uid-of-web-1"

    def test_and_of_one_whose_end_was_heard_of(self, cache: NodeCache) -> None:
        cache.upsert(node(uid="before", owner_uids=(), version=1))
        cache.remove(node(uid="before", owner_uids=(), version=2))
        cache.created("web", node(version=5))
        assert set(cache.group("web")) == {"web-1"}

    def test_a_deleted_node_is_on_its_way_out_at_once(self, cache: NodeCache) -> None:
        cache.upsert(node())
        cache.deleted("web-1")
        assert cache.group("web")["web-1"].deleting is True
        assert cache.count("web") == 0

    def test_a_deleted_node_that_was_not_there_any_more_is_gone_at_once(
        self, cache: NodeCache
    ) -> None:
        cache.upsert(node())
        cache.deleted("web-1", gone=True)
        assert cache.group("web") == {}

    @pytest.mark.parametrize("gone", [False, True])
    def test_deleting_what_is_not_known_is_nothing(self, cache: NodeCache, gone: bool) -> None:
        cache.deleted("web-1", gone=gone)
        assert len(cache) == 0

    def test_our_own_writes_wake_nobody_but_for_what_is_gone(
        self, cache: NodeCache, told: Told
    ) -> None:
        # Whoever writes looks again anyway.
        cache.upsert(node())
        told.since()
        cache.deleted("web-1")
        assert told.since() == []
        cache.remove(node(version=2))
        assert told.since() == ["web"]

    @pytest.mark.parametrize("is_ready", [True, False])
    def test_what_a_patch_has_made_of_a_node_is_there_at_once(
        self, cache: NodeCache, told: Told, is_ready: bool
    ) -> None:
        cache.upsert(node(version=2, ready=not is_ready))
        told.since()
        cache.updated(marked(version=5), ready=is_ready)
        record = cache.group("web")["web-1"]
        assert (record.ready, record.mark) == (is_ready, marked().mark)
        cache.upsert(node(version=4, ready=not is_ready))
        assert record is cache.group("web")["web-1"], "from before the patch"
        cache.upsert(marked(version=5, ready=is_ready))
        assert cache.group("web")["web-1"].mark == marked().mark
        assert told.since() == [], "all of it was known"

    def test_where_a_patch_does_not_tell_a_node_is_as_ready_as_it_was(
        self, cache: NodeCache
    ) -> None:
        cache.upsert(ready(version=2))
        cache.updated(marked(version=5))
        assert cache.group("web")["web-1"].ready is True

    def test_a_newer_event_is_truer_than_our_patch(self, cache: NodeCache) -> None:
        cache.upsert(ready(version=7))
        cache.updated(marked(version=5), ready=False)
        record = cache.group("web")["web-1"]
        assert (record.ready, record.mark) == (True, None)

    def test_a_node_that_is_born_held_has_its_mark(self, cache: NodeCache) -> None:
        cache.created("web", marked())
        mark = cache.group("web")["web-1"].mark
        assert mark is not None
        assert (mark.hold, mark.shown) == (True, "NotReady/Booting")


class TestLateEvents:
    def test_an_older_version_changes_nothing(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(ready(version=5))
        told.since()
        cache.upsert(node(version=4))
        assert cache.group("web")["web-1"].ready is True
        assert told.since() == []

    def test_what_was_deleted_stays_on_its_way_out(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(node(version=1))
        cache.deleted("web-1")
        cache.upsert(ready(version=2))
        record = cache.group("web")["web-1"]
        assert (record.deleting, record.ready) == (True, True)

    def test_another_node_of_that_name_is_another_node(self, cache: NodeCache) -> None:
        # Somebody else's, or our own after a crash.
        cache.upsert(ready(version=9))
        cache.deleted("web-1")
        cache.upsert(node(uid="another", version=11))
        record = cache.group("web")["web-1"]
        assert (record.uid, record.deleting, record.ready) == ("another", False, False)

    @pytest.mark.parametrize("group", ["web", "gpu"])
    def test_what_is_late_of_the_one_before_does_not_touch_it(
        self, cache: NodeCache, group: str
    ) -> None:
        # Versions are those of the whole cluster: the older one is of the older node.
        cache.created("web", node(version=11))
        cache.upsert(node(uid="before", group=group, version=9))
        cache.remove(node(uid="before", group=group, version=10))
        assert cache.group("web")["web-1"].uid == "uid-of-web-1"
        assert cache.group("gpu") == {}

    def test_removing_twice_is_removing_once(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(node())
        cache.remove(node())
        told.since()
        cache.remove(node())
        assert told.since() == []
        assert len(cache) == 0

    def test_removing_what_was_never_seen_is_nothing(self, cache: NodeCache, told: Told) -> None:
        cache.remove(node())
        assert told.since() == []

    def test_a_name_that_is_gone_can_be_seen_again_in_the_watch(self, cache: NodeCache) -> None:
        cache.upsert(node(version=1))
        cache.remove(node(version=2))
        cache.upsert(node(uid="another", version=3))
        assert set(cache.group("web")) == {"web-1"}


class TestListing:
    def test_it_is_the_truth(self, cache: NodeCache) -> None:
        cache.upsert(node("web-1"))
        cache.upsert(node("web-2"))
        cache.replace([node("web-2"), node("web-3")], 10)
        assert set(cache.group("web")) == {"web-2", "web-3"}

    def test_what_was_entered_since_it_was_made_stays(self, cache: NodeCache) -> None:
        cache.created("web", node("web-9", version=11))
        cache.replace([node("web-1")], 10)
        assert set(cache.group("web")) == {"web-1", "web-9"}

    def test_what_it_shows_in_an_older_state_stays_as_it_is(self, cache: NodeCache) -> None:
        cache.upsert(ready(version=12))
        cache.replace([node(version=3)], 10)
        assert cache.group("web")["web-1"].ready is True

    def test_what_is_deleted_stays_on_its_way_out(self, cache: NodeCache) -> None:
        cache.upsert(node(version=1))
        cache.deleted("web-1")
        cache.replace([node(version=1)], 10)
        assert cache.group("web")["web-1"].deleting is True

    def test_one_that_is_no_older_knows_better(self, cache: NodeCache) -> None:
        # The cluster was restored, and others have written since.
        cache.upsert(ready(version=8))
        cache.deleted("web-1")
        listed = [node(version=3)]
        cache.page(listed)
        cache.replace(listed, 10)
        record = cache.group("web")["web-1"]
        assert (record.ready, record.deleting) == (False, False)

    def test_after_a_restore_nothing_is_newer(self, cache: NodeCache, told: Told) -> None:
        for name in ("web-1", "web-2", "web-3"):
            cache.upsert(ready(name, version=50))
        cache.deleted("web-1")
        cache.remove(node("web-3", version=51))
        cache.forget_versions()
        cache.page([node("web-1", version=3)])
        cache.created("web", node("web-3", version=11))
        cache.replace([node("web-1", version=3)], 10)
        kept = {name: (r.ready, r.deleting) for name, r in cache.group("web").items()}
        assert kept == {"web-1": (False, False), "web-3": (False, False)}

    def test_only_groups_with_a_change_are_woken(self, cache: NodeCache, told: Told) -> None:
        for group in ("same", "less", "more", "other"):
            cache.upsert(node(f"{group}-1", group=group))
        told.since()
        cache.replace(
            [
                node("same-1", group="same"),
                node("more-1", group="more"),
                node("more-2", group="more"),
                node("other-1", group="other", ready=True),
            ],
            10,
        )
        assert sorted(told.since()) == ["less", "more", "other"]

    def test_a_page_of_it_says_nothing_of_other_nodes(self, cache: NodeCache) -> None:
        cache.upsert(node("web-1"))
        cache.page([node("web-2"), node("web-3")])
        assert set(cache.group("web")) == {"web-1", "web-2", "web-3"}

    def test_after_its_pages_the_whole_tells_only_what_is_gone(
        self, cache: NodeCache, told: Told
    ) -> None:
        cache.upsert(node("gone-1", group="gone"))
        records = [ready("web-1"), ready("web-2")]
        cache.page(records[:1])
        cache.page(records[1:])
        cache.deleted("web-1")
        told.since()
        cache.replace(records, 10)
        assert set(cache.group("web")) == {"web-1", "web-2"}
        assert cache.group("web")["web-1"].deleting is True
        assert (told.since(), len(told.endpoints)) == (["gone"], 2)


class TestWaking:
    @pytest.mark.parametrize(
        "fields",
        [
            {"ready": True},
            {"deleting": True},
            {"deleting": True, "finalizers": ("f",)},
            {"owner_uids": ()},
            {"annotations": {}},
            {
                "annotations": {
                    constants.NODE_GROUP_UID_ANNOTATION: UID,
                    constants.TEMPLATE_HASH_ANNOTATION: "new",
                }
            },
        ],
        ids=str,
    )
    def test_what_may_need_an_answer_wakes(
        self, cache: NodeCache, told: Told, fields: dict[str, Any]
    ) -> None:
        cache.upsert(node(version=1))
        told.since()
        cache.upsert(node(version=2, **fields))
        assert told.since() == ["web"]

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"labels": {constants.NODE_GROUP_LABEL: "web", "somebodys": "label"}},
            {"finalizers": ("f",)},
            {"owner_uids": (UID, "another")},
            {"addresses": ENDPOINT, "kubelet_port": 1},
            {"provider_id": "kwok:web-1"},
        ],
        ids=str,
    )
    def test_heartbeats_and_what_others_write_do_not(
        self, cache: NodeCache, told: Told, fields: dict[str, Any]
    ) -> None:
        # kwok updates every node every few minutes: at 10,000 that would be a pass each moment.
        cache.upsert(node(version=1))
        told.since()
        cache.upsert(node(version=2, **fields))
        assert told.since() == []

    def test_the_same_again_does_not(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(ready())
        told.since()
        cache.upsert(ready())
        assert told.since() == []

    def test_a_new_node_and_one_that_is_gone_do(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(node())
        assert told.since() == ["web"]
        cache.remove(node())
        assert told.since() == ["web"]

    def test_a_finalizer_that_is_taken_off_a_dying_node_does(
        self, cache: NodeCache, told: Told
    ) -> None:
        cache.upsert(node(version=1, deleting=True, finalizers=("f",)))
        told.since()
        cache.upsert(node(version=2, deleting=True))
        assert told.since() == ["web"]


class TestEndpoints:
    def test_a_node_that_turns_ready_tells_its_endpoint(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(node(version=1))
        cache.upsert(ready(version=2))
        assert told.endpoints == [("web-1", 10247, False)]

    def test_at_first_sight_it_may_be_one_that_we_gave(self, cache: NodeCache, told: Told) -> None:
        cache.created("web", ready())
        cache.upsert(ready("web-2"))
        assert told.endpoints == [("web-1", 10247, True), ("web-2", 10247, True)]

    def test_it_is_told_once(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(node(version=1))
        for version in range(2, 6):
            cache.upsert(ready(version=version))
        assert len(told.endpoints) == 1

    def test_another_one_is_told_anew(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(ready(version=2))
        cache.upsert(ready(version=3, port=32769))
        assert told.endpoints == [("web-1", 10247, True), ("web-1", 32769, False)]

    def test_as_long_as_a_node_is_not_ready_nothing_is_told(
        self, cache: NodeCache, told: Told
    ) -> None:
        cache.upsert(node(version=1, addresses=ENDPOINT, kubelet_port=1))
        assert told.endpoints == []

    def test_a_node_that_is_nobodys_tells_nothing(self, cache: NodeCache, told: Told) -> None:
        # A real node with our label has a real kubelet.
        cache.upsert(ready(owner_uids=()))
        cache.upsert(ready(owner_uids=(), version=3, port=32769))
        assert told.endpoints == []

    def test_nor_is_it_kwok_that_answers_where_we_make_a_node_ready(
        self, cache: NodeCache, told: Told
    ) -> None:
        given: dict[str, Any] = {"addresses": ENDPOINT, "kubelet_port": 10247}
        cache.upsert(marked(version=2, **given))
        assert told.endpoints == []
        cache.upsert(marked(version=3, ready=True, **given))
        assert told.endpoints == []
        cache.upsert(marked(version=4, **given))
        cache.upsert(marked(version=5, ready=True, addresses=ENDPOINT, kubelet_port=1))
        assert told.endpoints == [("web-1", 1, False)]

    def test_but_it_is_where_a_held_node_was_born_without_one(
        self, cache: NodeCache, told: Told
    ) -> None:
        cache.upsert(marked(version=2))
        cache.upsert(ready(version=3))
        assert told.endpoints == [("web-1", 10247, False)]

    def test_our_own_late_answer_does_not_tell_it_again(self, cache: NodeCache, told: Told) -> None:
        cache.upsert(ready(version=2))
        cache.created("web", ready(version=2))
        assert len(told.endpoints) == 1


class TestMemory:
    def test_equal_endpoints_are_one_object(self, cache: NodeCache) -> None:
        for n in range(3):
            cache.upsert(ready(f"web-{n}"))
        endpoints = {id(record.endpoint) for record in cache.group("web").values()}
        assert len(endpoints) == 1

    def test_names_that_are_gone_are_forgotten_in_the_end(self, cache: NodeCache) -> None:
        # An answer that is 10,000 removals late does not come.
        for n in range(10_001):
            cache.upsert(node(f"web-{n}"))
            cache.remove(node(f"web-{n}"))
        cache.created("web", node("web-10000"))
        assert cache.group("web") == {}
        cache.created("web", node("web-0"))
        assert set(cache.group("web")) == {"web-0"}
