"""What a group needs next, given what it wishes and what there is.

How passes work together over time is in test_world.py.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.plan import NO_NAMES, ObservedGroup, Plan, Target, make_plan
from kwok_operator.nodegroups.serials import Batch

NAMES = NodeNames.of("web", "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55")
NOW = "2026-01-02T03:04:05Z"
EARLIER = "2026-01-02T03:00:00Z"


def spec(target: int | None = None, **fields: Any) -> KwokNodeGroupSpec:
    return KwokNodeGroupSpec.model_validate({"targetSize": target, **fields})


def named(*serials: int) -> list[str]:
    return [NAMES.name(serial) for serial in serials]


def deleting(*names: str) -> dict[str, Any]:
    return {"scaleDown": {"nodesToDelete": list(names)}}


def seen(
    nodes: Iterable[int] = (),
    *,
    terminating: Iterable[int] = (),
    gone: Iterable[int] = (),
    batches: tuple[Batch, ...] = (),
    next_serial: int | None = None,
    held: int | None = None,
    room: int = 10_000,
) -> ObservedGroup:
    """What is there; the next serial is the one after all that occur, unless it is said."""
    there = {serial: NAMES.name(serial) for serial in nodes}
    used = [-1, *there, *terminating, *gone, *(b.last for b in batches)]
    return ObservedGroup(
        nodes=there,
        terminating=frozenset(terminating),
        gone=frozenset(gone),
        batches=batches,
        next_serial=max(used) + 1 if next_serial is None else next_serial,
        held=held,
        room=room,
    )


def plan(wish: KwokNodeGroupSpec, observed: ObservedGroup, *, may_create: bool = True) -> Plan:
    return make_plan(wish, observed, names=NAMES, now=NOW, may_create=may_create)


class TestTarget:
    @pytest.mark.parametrize(
        ("wish", "value", "limit"),
        [
            (spec(3), 3, None),
            (spec(0), 0, None),
            (spec(3, autoscaling={}), 3, None),
            (spec(3, autoscaling={"minSize": 3, "maxSize": 3}), 3, None),
            (spec(3, autoscaling={"minSize": 5}), 5, "MinSize"),
            (spec(0, autoscaling={"minSize": 5}), 5, "MinSize"),
            (spec(9, autoscaling={"maxSize": 5}), 5, "MaxSize"),
            (spec(9, autoscaling={"maxSize": 0}), 0, "MaxSize"),
            (spec(autoscaling={"minSize": 5}), 5, "MinSize"),
            (spec(autoscaling={"maxSize": 1}), 1, "MaxSize"),
        ],
    )
    def test_is_within_the_bounds(
        self, wish: KwokNodeGroupSpec, value: int, limit: str | None
    ) -> None:
        target = plan(wish, seen([0, 1])).target
        assert target.value == value
        assert (target.limit and target.limit.reason) == limit

    def test_a_limit_tells_what_was_asked_for_and_what_holds_it(self) -> None:
        low = plan(spec(3, autoscaling={"minSize": 5}), seen()).target
        assert low.wanted == 3 and low.limit is not None
        assert low.limit.message == "autoscaling.minSize is 5; 3 would be fewer."
        high = plan(spec(9, autoscaling={"maxSize": 5}), seen()).target
        assert high.wanted == 9 and high.limit is not None
        assert high.limit.message == "autoscaling.maxSize is 5; 9 would be more."

    @pytest.mark.parametrize(
        ("wish", "observed", "value"),
        [
            # Unset, it is the one in force, and at the beginning as many as there are.
            (spec(), seen([0, 1], held=7), 7),
            (spec(), seen(), 0),
            (spec(), seen([4, 8]), 2),
            (spec(0), seen([0, 1], held=2), 0),
            (spec(), seen([0, 1], held=0), 0),
        ],
    )
    def test_zero_is_not_unset(
        self, wish: KwokNodeGroupSpec, observed: ObservedGroup, value: int
    ) -> None:
        assert plan(wish, observed).target == Target(value, value)

    def test_what_goes_over_the_brake_waits(self) -> None:
        target = plan(spec(10), seen(range(3), room=4)).target
        assert (target.value, target.wanted) == (4, 10)
        assert target.limit is not None and target.limit.reason == "NodeLimit"
        assert "leaves 4 for this one, 6 of 10 wait" in target.limit.message
        assert "--max-total-nodes" in target.limit.message

    def test_the_brake_takes_no_node_away(self) -> None:
        values = {10: 10, 9: 9, 5: 5, 4: 5, 0: 5}
        targets = {room: plan(spec(10), seen(range(5), room=room)).target for room in values}
        assert {room: target.value for room, target in targets.items()} == values
        shrunk = plan(spec(2), seen(range(5), room=0)).target
        assert (shrunk.value, shrunk.limit) == (2, None)

    def test_the_brake_is_stronger_than_the_floor(self) -> None:
        target = plan(spec(0, autoscaling={"minSize": 5}), seen(room=3)).target
        assert target.value == 3
        assert target.limit is not None and target.limit.reason == "NodeLimit"


def asked(first: int, last: int, *spent: int, at: str = EARLIER) -> Batch:
    return Batch(first, last, at, frozenset(spent))


def does(create: tuple[int, ...] = (), delete: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    """What a plan has: nothing to create or to delete but these serials, and whatever else."""
    return {"create": create, "delete": sorted(named(*delete)), **more}


def found(todo: Plan, fields: Iterable[str]) -> dict[str, Any]:
    """Of a plan, in the same form."""
    return {name: getattr(todo, name) for name in fields} | {"delete": sorted(todo.delete)}


Case = tuple[KwokNodeGroupSpec, ObservedGroup, dict[str, Any]]

TOO_FEW: dict[str, Case] = {
    "new serials are asked for in one batch dated now": (
        spec(3),
        seen(),
        does((0, 1, 2), pending=(0, 1, 2), batches=(asked(0, 2, at=NOW),), next_serial=3),
    ),
    "only what is missing is asked for": (
        spec(5),
        seen([0, 3, 4]),
        does((5, 6), batches=(asked(5, 6, at=NOW),)),
    ),
    "what was asked for is waited for and keeps its date": (
        spec(5),
        seen([0, 2], batches=(asked(0, 4),)),
        does((1, 3, 4), batches=(asked(1, 4),), next_serial=5),
    ),
    "a higher target adds a batch of its own": (
        spec(7),
        seen([0, 1], batches=(asked(0, 4),)),
        does((2, 3, 4, 5, 6), batches=(asked(2, 4), asked(5, 6, at=NOW))),
    ),
    "when all have come no batch is left": (
        spec(3),
        seen(range(3), batches=(asked(0, 2),)),
        does(batches=(), next_serial=3),
    ),
    "what somebody deleted comes back under a new name": (spec(3), seen([0, 2]), does((3,))),
    "also while its batch is still being filled": (
        spec(4),
        seen([0], gone=[1], batches=(asked(0, 3),)),
        does((2, 3, 4), batches=(asked(2, 3), asked(4, 4, at=NOW))),
    ),
    # A foreign finalizer may hold it for ever.
    "a terminating node counts for nothing": (spec(3), seen([0, 1], terminating=[2]), does((3,))),
    "a terminating node is not made again under its name": (
        spec(3),
        seen([0], terminating=[1], batches=(asked(0, 2),)),
        does((2, 3)),
    ),
    "the first serial is the recorded one": (spec(1), seen(next_serial=41), does((41,))),
    "nothing is asked for over the brake": (spec(10), seen(range(3), room=5), does((3, 4))),
}
TOO_MANY: dict[str, Case] = {
    "what has not come is taken back first": (
        spec(2),
        seen([0, 1, 2], batches=(asked(3, 4),)),
        does(delete=(2,), pending=(), batches=()),
    ),
    "also where later ones have come": (
        spec(2),
        seen([6], batches=(asked(3, 6),)),
        does((3,), batches=(asked(3, 3),)),
    ),
    "what was taken back is not given out again": (spec(2), seen([0], next_serial=6), does((6,))),
    "its serials are spent": (spec(1), seen([0], batches=(asked(1, 5),)), does(next_serial=6)),
    "terminating nodes are not deleted again": (
        spec(1),
        seen([0, 1], terminating=[2, 3]),
        does(delete=(1,)),
    ),
}
NAMED: dict[str, Case] = {
    "with a lower target exactly these go": (
        spec(3, **deleting(*named(0, 2))),
        seen(range(5)),
        does(delete=(0, 2), unknown=()),
    ),
    "with an unchanged target they are replaced": (
        spec(5, **deleting(*named(0, 2))),
        seen(range(5)),
        does((5, 6), (0, 2)),
    ),
    "with a still lower target others go too": (
        spec(2, **deleting(*named(0))),
        seen(range(5)),
        does(delete=(0, 4, 3)),
    ),
    "more of them than the target leaves room for": (
        spec(3, **deleting(*named(0, 1, 2, 3, 4))),
        seen(range(5)),
        does((5, 6, 7), (0, 1, 2, 3, 4)),
    ),
    "a group without a target replaces them": (
        spec(None, **deleting(*named(1))),
        seen(range(3), held=3),
        does((3,), (1,)),
    ),
    "a pending one is never created": (
        spec(3, **deleting(*named(2))),
        seen([0], batches=(asked(1, 3),)),
        does((1, 3), batches=(asked(1, 3, 2),), unknown=()),
    ),
    "and replaced where the target says so": (
        spec(4, **deleting(*named(2))),
        seen([0], batches=(asked(1, 3),)),
        does((1, 3, 4)),
    ),
    "one that is gone already is reported": (
        spec(2, **deleting(*named(0, 1))),
        seen([1, 2, 3]),
        does(delete=(1,), unknown=tuple(named(0))),
    ),
    "one that terminates is known": (
        spec(1, **deleting(*named(1))),
        seen([0], terminating=[1]),
        does(unknown=()),
    ),
    # What goes over the brake waits, a replacement too.
    "over the brake a named node goes and is not replaced": (
        spec(5, **deleting(*named(0))),
        seen(range(5), room=2),
        does(delete=(0,)),
    ),
    "a serial far ahead costs nothing": (
        spec(2, **deleting(NAMES.name(10**12))),
        seen(),
        does((0, 1), next_serial=2),
    ),
}
PAUSED: dict[str, Case] = {
    **{
        f"nothing is created or deleted at {target}": (
            spec(target, paused=True, **deleting(*named(0))),
            seen([0, 1], batches=(asked(2, 3),)),
            does(next_serial=4),
        )
        for target in (0, 2, 9)
    },
    "what was asked for stays asked for": (
        spec(0, paused=True),
        seen([0, 2], batches=(asked(1, 3),)),
        does(pending=(1, 3), batches=(asked(1, 3),)),
    ),
    "the target is told all the same": (spec(9, paused=True), seen(), does(target=Target(9, 9))),
}
WITHOUT_A_TEMPLATE: dict[str, Case] = {
    "nothing new is asked for": (spec(3), seen([0]), does(pending=(), batches=(), next_serial=1)),
    "what was asked for is not created and not given up": (
        spec(3),
        seen([0], batches=(asked(1, 2),)),
        does(pending=(1, 2), batches=(asked(1, 2),)),
    ),
    "nodes may still go": (spec(1, **deleting(*named(0))), seen(range(3)), does(delete=(0, 2))),
}


@pytest.mark.parametrize(("name", "case"), [*(TOO_FEW | TOO_MANY | NAMED | PAUSED).items()])
def test_what_is_done(name: str, case: Case) -> None:
    wish, observed, expected = case
    assert found(plan(wish, observed), expected) == expected


@pytest.mark.parametrize(("name", "case"), WITHOUT_A_TEMPLATE.items())
def test_what_is_done_without_a_usable_template(name: str, case: Case) -> None:
    wish, observed, expected = case
    assert found(plan(wish, observed, may_create=False), expected) == expected


@pytest.mark.parametrize(
    ("order", "deleted"),
    [(None, (9, 8, 5)), ("NewestFirst", (9, 8, 5)), ("OldestFirst", (1, 2, 5))],
)
def test_nodes_go_in_the_order_asked_for(order: str | None, deleted: tuple[int, ...]) -> None:
    wish = spec(2, scaleDown={"order": order})
    # Given in disorder: what counts is the serial, which tells the age.
    assert plan(wish, seen([9, 1, 8, 5, 2])).delete == tuple(named(*deleted))
    none = spec(0, scaleDown={"order": order})
    assert sorted(plan(none, seen(range(4))).delete) == named(0, 1, 2, 3)
    # What has not come is taken back before, the newest first, whatever the order.
    wish = spec(4, scaleDown={"order": order})
    expected = does((2, 3), batches=(asked(2, 3),))
    assert found(plan(wish, seen([0, 1], batches=(asked(2, 6),))), expected) == expected


@pytest.mark.parametrize(
    "name",
    ["web", "web-zzzz-000001", NAMES.name(99), NAMES.name(1).replace("000001", "1"), "other"],
)
def test_a_name_that_names_nothing_is_reported_and_nothing_is_done(name: str) -> None:
    expected = does(unknown=(name,), batches=())
    assert found(plan(spec(3, **deleting(name)), seen(range(3))), expected) == expected


def test_thousands_of_names_are_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(Batch, "__contains__", lambda _, serial: looked.append(serial))
    batches = tuple(asked(10 * n, 10 * n + 5, 10 * n + 3) for n in range(50))
    todo = plan(spec(0, **deleting(*named(*range(1_000)))), seen(batches=batches))
    known = {s for batch in batches for s in batch}
    assert todo.unknown == tuple(named(*(s for s in range(1_000) if s not in known)))
    assert len(looked) <= 1_000


def test_serials_not_given_out_yet_are_passed_over() -> None:
    # Or a node would be created, deleted as named, created again, and so on.
    todo = plan(spec(5, **deleting(*named(3, 5))), seen(range(3)))
    assert todo.create == (4, 6)
    assert todo.next_serial == 7
    assert {serial for batch in todo.batches for serial in batch} == {4, 6}
    after = seen([0, 1, 2, 4, 6], batches=todo.batches, next_serial=7)
    again = plan(spec(5, **deleting(*named(3, 5))), after)
    assert (again.create, again.delete, again.pending) == ((), (), ())


def test_deletes_are_the_same_whatever_the_room() -> None:
    wish = spec(4, **deleting(*named(1)))
    plans = [plan(wish, seen(range(6), room=room)) for room in (0, 3, 5, 100)]
    assert {p.delete for p in plans} == {tuple(named(1, 5))}


@pytest.mark.parametrize("ahead", [0, 2, 8])
def test_no_name_is_asked_for_that_no_serial_is_read_from(ahead: int) -> None:
    made = plan(spec(6), seen(range(2), next_serial=10**18 - ahead))
    serials = [NAMES.serial(NAMES.name(serial)) for serial in made.create]
    assert serials == list(range(10**18 - ahead, 10**18))[:4]
    assert made.target.value == 2 + len(serials)
    assert (made.target.limit is not None and made.target.limit.reason) == (ahead < 4 and NO_NAMES)
