"""Places of nodes: what they mean, how they are recorded, and who gets which.

World: groups of one domain, pass by pass, with what an API server would keep. Its rules ask for
nodes, have them appear late, delete them by hand, hold them in deletion, take their annotations and
labels, wipe and lose statuses, take racks out, and restart the operator at any instant. Always: no
two live nodes stand in one place; a place that was recorded holds; each new instance gets the
lowest free place, in a rack that is out for no group.
"""

import itertools
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from kwok_operator.constants import PLACE_ANNOTATION, TOPOLOGY_ANNOTATION
from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus, PendingBatch
from kwok_operator.nodegroups.api.template import Template
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord
from kwok_operator.nodegroups.observation import Memory, observe, observed
from kwok_operator.nodegroups.places import NodePlace, PlaceRanges
from kwok_operator.nodegroups.plan import make_plan
from kwok_operator.topology.api import MAX_LEVELS, MAX_UNIT, SHORT_NAMES, TopologyStatus
from kwok_operator.topology.layout import Layout
from kwok_operator.topology.record import dump, fill, read
from kwok_operator.topology.step import GroupPlaces, TopologyPass, TopologyStep

NOW = "2026-01-02T03:04:05Z"
RACKS = [{"label": "example.com/block", "of": 2}, {"label": "example.com/rack", "of": 3}]


def layout(*levels: Any, group: str = "web", **topology: Any) -> Layout:
    given = {"levels": [*levels] or RACKS, **topology}
    found = Layout.of(Template.model_validate({"topology": given}), group=group)
    assert found is not None
    return found


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=MAX_LEVELS),
    st.integers(0, 9_999_999),
    st.integers(0, 9_999_999),
)
def test_nodes_share_a_value_if_they_stand_together(sizes: list[int], one: int, two: int) -> None:
    levels = [{"label": f"example.com/{n}", "of": size} for n, size in enumerate(sizes)]
    found = layout(*levels)
    first, second, size = found.labels(one), found.labels(two), 1
    for level, of in reversed(list(zip(levels, sizes, strict=True))):
        size *= of
        label = str(level["label"])
        assert (first[label] == second[label]) == (one // size == two // size)
        assert (found.unit(first[label]) or ()) == range(
            one // size * size, one // size * size + size
        )
    assert Layout.read({TOPOLOGY_ANNOTATION: found.text}) == found
    assert found.place_of(found.marks(one)[1]) == one


def test_the_longest_values_are_labels() -> None:
    found = layout(
        *({"label": f"example.com/{n}", "of": 15} for n in range(MAX_LEVELS)), domain="a" * 40
    )
    assert max(len(v) for v in found.labels(9_999_999).values()) <= 63
    with pytest.raises(TemplateError, match="which may have 63"):
        layout(*({"label": f"a.b/{n}", "of": 11} for n in range(MAX_LEVELS)), group="a" * 50)


@pytest.mark.parametrize(
    ("levels", "shape"),
    [
        ([{"label": "gke/block", "of": 2}, {"label": SHORT_NAMES["gke/block"], "of": 2}], {}),
        ([{"label": "kubernetes/zone", "of": 2}], {"zone": "b"}),
        ([{"label": "node.kubernetes.io/instance-type", "of": 2}], {"instanceType": "m5"}),
        ([{"label": "kubernetes/zone", "of": 2}], {"labels": {SHORT_NAMES["kubernetes/zone"]: ""}}),
    ],
)
def test_a_short_form_is_its_label(levels: list[Any], shape: dict[str, Any]) -> None:
    template = {"topology": {"levels": levels}, "shape": shape}
    with pytest.raises(TemplateError, match="is set twice"):
        Layout.of(Template.model_validate(template), group="web")


TAILS = st.lists(st.sampled_from(["-0", "-1", "-2", "-01", "-", "a"]), max_size=2)
DOMAINS = TAILS.map(lambda tails: "a" + "".join(tails))


@given(DOMAINS, DOMAINS, st.data())
def test_layouts_clash_if_two_places_look_like_one(one: str, two: str, data: Any) -> None:
    names = ["a.b/x", "a.b/y"]
    drawn = st.permutations(names).flatmap(
        lambda labels: st.tuples(
            *(st.builds(lambda of, n=n: {"label": n, "of": of}, st.integers(1, 3)) for n in labels)
        ).flatmap(lambda levels: st.sampled_from([levels, levels[:1]]))
    )
    first = Layout.of(_template(one, data.draw(drawn)), group="")
    second = Layout.of(_template(two, data.draw(drawn)), group="")
    assert first is not None and second is not None
    # Which places have each value: they may be the same ones of one domain.
    members: list[dict[tuple[str, str], set[tuple[str, int]]]] = []
    for each in (first, second):
        members.append({})
        for place in range(100):
            for pair in each.labels(place).items():
                members[-1].setdefault(pair, set()).add((each.domain, place))
    shared = members[0].keys() & members[1].keys()
    label = min((x for x in shared if members[0][x] != members[1][x]), default=None)
    assert (first.clashes(second) is None) == (second.clashes(first) is None) == (label is None)


def _template(domain: str, levels: Any) -> Template:
    return Template.model_construct(
        topology=Template.model_validate({"topology": {"levels": [*levels]}}).topology.model_copy(  # type: ignore[union-attr]
            update={"domain": domain}
        )
    )


@given(
    st.dictionaries(st.integers(0, 400), st.integers(0, 400), max_size=60).map(
        lambda placed: {s: p for p, s in {p: s for s, p in placed.items()}.items()}
    )
)
def test_what_is_recorded_is_read_back(placed: dict[int, int]) -> None:
    status = TopologyStatus.model_validate(dump("web", placed, next_place=3).dump())
    assert read(status, domain="web", most=len(placed)) == placed
    assert read(status, domain="other", most=len(placed)) == {}


@pytest.mark.parametrize("order", ["the last went first", "any"])
def test_places_in_any_order_are_recorded_in_little_room(order: str) -> None:
    places = list(range(10_000))[::-1]
    if order == "any":
        random.Random(1).shuffle(places)
    placed = dict(enumerate(places))
    status = TopologyStatus.model_validate(dump("web", placed, next_place=3).dump())
    assert read(status, domain="web", most=len(placed)) == placed
    assert len(json.dumps(status.dump())) < 40_000


@pytest.mark.parametrize(
    "batch",
    [
        {"serials": "0-9", "places": "0-8"},
        {"serials": "0-9999999", "places": "0-9999999"},
        {"serials": "nonsense", "places": "0"},
        {"serials": "0", "places": "99999999"},
        {"serials": "0", "places": "*nonsense"},
        {"serials": "0", "places": "*eNr7////fwAJ+gP9"},
    ],
)
def test_what_others_wrote_into_the_record_is_left_out(batch: dict[str, str]) -> None:
    status = TopologyStatus.model_validate({"domain": "web", "pending": [batch]})
    assert read(status, domain="web", most=100) == {}


def test_the_largest_record_is_small() -> None:
    holes = fill(range(10_000), {place for place in range(30_000) if place % 3})
    assert len(json.dumps(dump("web", holes, next_place=None).dump())) < 20_000
    assert MAX_UNIT == 1_000_000


class World:
    """An API server of groups and nodes, and an operator's topology step."""

    def __init__(self, *groups: str) -> None:
        self.version = itertools.count(1)
        self.bodies: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.wiped = False
        self.out: dict[str, tuple[str, ...]] = {}
        """The values of racks and blocks that are out, by group."""
        for name in groups:
            self.apply(name, 0)
        self.restart()

    def restart(self) -> None:
        """A new process knows what the API server has."""
        self.store = GroupStore(clock=lambda: 0.0)
        self.cache = NodeCache(changed=lambda _: None, initialised=lambda *_, **__: None)
        self.cache.keeps_strays = True
        self.memories: dict[str, Memory] = {}
        unused: Any = None
        self.step = TopologyStep(
            store=self.store,
            cache=self.cache,
            writer=unused,
            executor=unused,
            clock=unused,
            wake=lambda *_: None,
            try_anew=lambda _: None,
        )
        for body in self.bodies.values():
            self.store.put(Group.parse(body))
        self.cache.replace([replace(node) for node in self.nodes.values()], 10**9)

    def apply(self, name: str, size: int) -> None:
        topology = {"domain": "pool", "levels": RACKS}
        old = self.bodies.get(name, {"metadata": {"name": name, "uid": f"uid-{name}"}})
        cloud = {"outageUnits": [*self.out.get(name, ())]}
        spec = {"targetSize": size, "template": {"topology": topology}, "cloud": cloud}
        self._put({**old, "spec": spec})

    def _put(self, body: dict[str, Any]) -> None:
        metadata = {**body["metadata"], "resourceVersion": str(next(self.version))}
        name = metadata["name"]
        self.bodies[name] = {**body, "metadata": metadata}
        if hasattr(self, "store"):
            self.store.put(Group.parse(self.bodies[name]))

    def look(
        self, name: str, *, written: bool = True, late: Mapping[int, int] = MappingProxyType({})
    ) -> dict[int, int]:
        """A pass up to its status, which may fail to be written. Returns who has which place.

        Nodes that are `late`, by serial, are reported in the middle of the pass."""
        group = self.store.get(name)
        assert group is not None
        memory = self.memories.setdefault(name, Memory(group.uid, group.status, 0))
        memory.refresh(group)
        seen = observe(group, memory, self.cache)
        plan = make_plan(
            group.spec,
            observed(seen, memory, room=10**6),
            names=seen.names,
            now=NOW,
            may_create=True,
        )
        strays = len(self.cache.strays(name))
        plan = replace(plan, create=plan.create[: max(0, len(plan.create) - strays)])
        for serial, place in late.items():
            self.create(name, serial, place)
        joined = self.step.join(group, memory, seen, now=0)
        assert isinstance(joined, TopologyPass)
        node: dict[str, Any] = {"metadata": {"labels": {}, "annotations": {}}}
        template = self.step.resolved(group, node)
        with pytest.raises(StopIteration) as done:  # it awaits nothing
            joined.revise(plan, template=template, reporting=False, stop=lambda: False).send(None)
        plan = done.value.value
        if written:
            batches = (
                PendingBatch(
                    first=b.first,
                    last=b.last,
                    requested_at=NOW,
                    except_=",".join(map(str, sorted(b.spent))),
                )
                for b in plan.batches
            )
            status = KwokNodeGroupStatus(
                target_size=plan.target.value,
                next_serial=plan.next_serial,
                pending=tuple(batches),
                **joined.report().fields,
            )
            self._put({**self.bodies[name], "status": status.dump()})
            memory.status = KwokNodeGroupStatus.model_validate(status.dump())
        for each in plan.delete:
            self.drop(each)
        births = {serial: joined.birth(serial, {}) for serial in plan.create}
        places = {
            serial: NodePlace.parse(birth.annotations[PLACE_ANNOTATION])
            for serial, birth in births.items()
            if birth is not None
        }
        assert len(places) == len(plan.create)
        return {serial: place.number for serial, place in places.items() if place is not None}

    def create(self, name: str, serial: int, place: int) -> None:
        group = self.store.get(name)
        assert group is not None
        node = group.names.name(serial)
        self.memories[name].seen.add(serial)
        self.put(
            NodeRecord(
                name=node,
                uid=f"uid-{node}",
                resource_version=0,
                group=name,
                owner=group.uid,
                serial=serial,
                template_hash="",
                ready=True,
                deleting=False,
                held=False,
                endpoint=None,
                place=NodePlace("pool", place),
            )
        )

    def put(self, node: NodeRecord) -> None:
        node = replace(node, resource_version=next(self.version))
        self.nodes[node.name] = node
        self.cache.upsert(replace(node))

    def drop(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.cache.deleted(name, gone=True)

    def standing(self, name: str) -> GroupPlaces:
        group = self.store.get(name)
        assert group is not None
        return self.step.standing(group)


@pytest.mark.parametrize("edited", [None, NodePlace("pool", 7), NodePlace("other", 1)])
def test_a_record_knows_better_than_an_annotation_that_was_edited_meanwhile(
    edited: NodePlace | None,
) -> None:
    world = World("a")
    world.apply("a", 3)
    assert world.look("a") == {0: 0, 1: 1, 2: 2}
    world.create("a", 0, 0)
    (node,) = world.nodes.values()
    world.put(replace(node, place=edited))
    world.restart()
    assert world.look("a") == {1: 1, 2: 2}
    assert world.standing("a").nodes == {0: 0}
    assert world.standing("a").astray == {0}


def test_a_node_that_is_reported_late_stands_where_it_was_recorded() -> None:
    world = World("a")
    world.apply("a", 3)
    world.look("a")
    assert world.look("a", late={1: 1}) == {0: 0, 1: 1, 2: 2}


class Racks(RuleBasedStateMachine):
    """`true` are the places that nodes have had from their first write, whatever is edited."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World("a", "b")
        self.true: dict[str, int] = {}
        self.known: dict[tuple[str, int], int] = {}
        """Places that were recorded, by group and serial, until the node is there."""
        self.given: dict[tuple[str, int], int] = {}
        self.vanished: dict[str, tuple[NodeRecord, bool]] = {}
        """Nodes that the watch has reported gone, and whether they are."""

    def exists(self, name: str) -> bool:
        return name in self.world.nodes or name in self.vanished

    @initialize()
    def begin(self) -> None:
        self.world.apply("a", 6)
        self.reconcile("a", 4, True)
        self.world.apply("b", 3)
        self.reconcile("b", 2, True)

    @rule(name=st.sampled_from("ab"), size=st.integers(0, 9))
    def scale(self, name: str, size: int) -> None:
        self.world.apply(name, size)

    @rule(
        name=st.sampled_from("ab"),
        out=st.lists(st.sampled_from(["pool-0", "pool-0-1", "pool-1-0", "pool-2"]), max_size=2),
    )
    def take_out(self, name: str, out: list[str]) -> None:
        self.world.out[name] = tuple(out)
        self.world.apply(name, self.world.bodies[name]["spec"]["targetSize"])

    @rule(
        name=st.sampled_from("ab"),
        made=st.integers(0, 9),
        written=st.sampled_from([True, True, True, False]),
    )
    def reconcile(self, name: str, made: int, written: bool) -> None:
        """A pass that makes only some of the nodes, or ends before its status is written."""
        (other,) = {"a", "b"} - {name}
        before = {*self.true.values()} | {p for (g, _), p in self.known.items() if g == other}
        before |= {*self.world.standing(other).promised.values()}
        own = {serial: p for (g, serial), p in self.known.items() if g == name}
        placed = self.world.look(name, written=written)
        assert {s: placed[s] for s in placed if s in own} == {s: own[s] for s in placed if s in own}
        # After a crash, one whose node was there and is gone is made again, where it stood.
        old = {s: p for s, p in placed.items() if self.given.get((name, s)) == p}
        kept = before | {*old.values()}
        new = {serial: place for serial, place in placed.items() if serial not in old}
        dead = {value for values in self.world.out.values() for value in values}
        lit = (
            n
            for n in itertools.count()
            if dead.isdisjoint(layout(domain="pool").labels(n).values())
        )
        free = (place for place in lit if place not in kept)
        expected = dict(zip(sorted(new), free, strict=False))
        assert self.vanished or new == expected, (new, kept, dead)
        self.true = {n: p for n, p in self.true.items() if self.exists(n)}
        if not written:
            return
        self.known = {key: p for key, p in self.known.items() if key[0] != name}
        self.known |= {(name, serial): place for serial, place in placed.items()}
        self.given |= self.known
        for serial in list(placed)[:made]:
            self.world.create(name, serial, placed[serial])
            group = self.world.store.get(name)
            assert group is not None
            self.true[group.names.name(serial)] = placed[serial]
            del self.known[name, serial]

    @rule(data=st.data())
    def delete_by_hand(self, data: Any) -> None:
        if self.world.nodes:
            name = data.draw(st.sampled_from(sorted(self.world.nodes)))
            self.world.drop(name)
            del self.true[name]

    @rule(data=st.data(), gone=st.booleans())
    def vanish(self, data: Any, gone: bool) -> None:
        """It is gone, or has lost its label."""
        live = [name for name, node in self.world.nodes.items() if not node.deleting]
        if live:
            name = data.draw(st.sampled_from(sorted(live)))
            record = self.world.nodes.pop(name)
            self.vanished[name] = record, gone
            self.world.cache.remove(replace(record))
            if gone:
                del self.true[name]

    @rule(data=st.data())
    def look_for_one(self, data: Any) -> None:
        if self.vanished:
            self.settle(data.draw(st.sampled_from(sorted(self.vanished))))

    def settle(self, name: str) -> None:
        record, gone = self.vanished.pop(name)
        if gone:
            self.world.cache.settle_stray(record.group, name)
        else:
            self.world.put(record)

    @rule(data=st.data())
    def hold_in_deletion(self, data: Any) -> None:
        if self.world.nodes:
            name = data.draw(st.sampled_from(sorted(self.world.nodes)))
            self.world.put(replace(self.world.nodes[name], deleting=True, held=True))

    @rule(data=st.data(), lie=st.none() | st.integers(0, 9_000).map(lambda n: NodePlace("pool", n)))
    def edit_the_annotation(self, data: Any, lie: NodePlace | None) -> None:
        """Only of a node that the operator has seen: it can't know better."""
        seen = [
            n.name
            for each in self.world.store.names()
            for n in self.world.cache.group(each).values()
            if n.serial in self.world.standing(each).nodes and not n.deleting
        ]
        if seen:
            name = data.draw(st.sampled_from(sorted(seen)))
            self.world.put(replace(self.world.nodes[name], place=lie))
            # The next pass knows, and has it written again.
            group = self.world.nodes[name].group
            self.world.look(group, written=False)
            self.true = {n: p for n, p in self.true.items() if self.exists(n)}
            if name not in self.true:
                return  # it was too many
            serial = self.world.nodes[name].serial
            assert serial is not None
            assert self.world.standing(group).nodes[serial] == self.true[name]
            self.world.put(
                replace(self.world.nodes[name], place=NodePlace("pool", self.true[name]))
            )

    @rule()
    def restart(self) -> None:
        for name in list(self.vanished):
            self.settle(name)
        self.world.restart()

    @invariant()
    def no_two_stand_in_one_place(self) -> None:
        places = [*self.true.values(), *self.known.values()]
        assert len(places) == len(set(places)), (self.true, self.known)


def test_no_two_nodes_ever_stand_in_one_place() -> None:
    run_state_machine_as_test(
        Racks, settings=settings(deadline=None, max_examples=30, stateful_step_count=30)
    )


@given(
    st.lists(
        st.builds(lambda at, size: range(at, at + size), st.integers(0, 30), st.integers(1, 9))
    )
)
def test_places_get_the_lowest_ones_outside_of_all_ranges(ranges: list[range]) -> None:
    out, taken = PlaceRanges.union(ranges), {3, 4}
    dark = set().union(*ranges)
    assert [place for place in range(50) if place in out] == sorted(dark)
    free = (place for place in itertools.count() if place not in dark | taken)
    assert fill(range(9), taken, out=out) == dict(zip(range(9), free, strict=False))
