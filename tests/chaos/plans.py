"""What a run will do, drawn from a seed before it does anything.

    seed, name of the test ──> chance(...) ──> instants, groups, what each client does

Pure: the same seed gives the same plan. What the machine makes of it, which call is in flight when
the blow falls, no seed repeats.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

SIZES: Final = (0, 1, 2, 5, 10, 20, 40)
"""Those of groups, times `World.scale`."""
CLIENTS: Final = 3


@dataclass(frozen=True, slots=True)
class Scope:
    """How large everything is: small enough for each commit, or as large as it was asked for."""

    nodes: int
    kills: int
    outage: float
    """Seconds for which something is away."""
    groups: int
    minutes: float
    """How long clients are at work, and everything happens at once."""
    blows: int
    """In one round of that."""
    patience: float
    """Seconds for everything to be as it should."""


SMALL: Final = Scope(nodes=200, kills=6, outage=4, groups=8, minutes=0.25, blows=9, patience=150)
FULL: Final = Scope(nodes=2000, kills=100, outage=60, groups=100, minutes=5, blows=16, patience=600)


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL, so many seconds after the start of the operator, or after so many nodes that it has
    written, whatever is asked for.
    """

    after: float | None
    nodes: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """What one client does next to one group, after a pause."""

    pause: float
    verb: str
    group: int
    spec: Mapping[str, Any]
    victims: int = 0


def chance(seed: int, name: str) -> random.Random:
    """The chance of one test: it does not depend on which others run."""
    return random.Random(f"{seed}/{name}")


def kills(draw: random.Random, *, count: int, startup: float, nodes: int) -> list[Kill]:
    """A third while it starts, the others between two nodes."""
    plan = []
    for _ in range(count):
        if draw.random() < 1 / 3:
            plan.append(Kill(after=draw.uniform(0, startup), nodes=None))
        else:
            plan.append(Kill(after=None, nodes=draw.randrange(1, max(2, nodes // 4))))
    return plan


def steps(draw: random.Random, *, groups: int, seconds: float, rate: float) -> list[Step]:
    """What one client does in that time, at so many steps a second."""
    plan: list[Step] = []
    elapsed = 0.0
    while True:
        pause = draw.expovariate(rate)
        elapsed += pause
        if elapsed >= seconds:
            return plan
        plan.append(_step(draw, pause=pause, group=draw.randrange(groups)))


def _step(draw: random.Random, *, pause: float, group: int) -> Step:
    verbs = {
        "create": 2,
        "scale": 6,
        "template": 2,
        "strategy": 1,
        "bounds": 2,
        "pause": 1,
        "resume": 2,
        "nodesToDelete": 3,
        "delete": 1,
    }
    verb = draw.choices(list(verbs), weights=list(verbs.values()))[0]
    if verb == "nodesToDelete":
        return Step(pause, verb, group, {}, victims=draw.randrange(1, 6))
    return Step(pause, verb, group, _spec(draw, verb))


def _spec(draw: random.Random, verb: str) -> dict[str, Any]:
    size = draw.choice(SIZES)
    match verb:
        case "create":
            order = draw.choice(["NewestFirst", "OldestFirst"])
            return {"targetSize": size, "scaleDown": {"order": order}}
        case "scale":
            return {"targetSize": size}
        case "template":
            return {"template": {"shape": {"cpu": str(draw.choice([2, 4, 8, 16]))}}}
        case "strategy":
            return {
                "updateStrategy": {"type": draw.choice(["OnDelete", "InPlace", "RollingUpdate"])}
            }
        case "bounds":
            low = draw.choice([0, 0, 1, 5])
            return {"autoscaling": {"minSize": low, "maxSize": low + draw.choice(SIZES)}}
        case "pause" | "resume":
            return {"paused": verb == "pause"}
    return {}


def effective(spec: Mapping[str, Any], *, held: int) -> int:
    """The target in force, where no limit for all groups together holds it; `held` is what a spec
    without a target keeps.
    """
    bounds = spec.get("autoscaling") or {}
    size = spec.get("targetSize")
    value: int = max(held if size is None else size, bounds.get("minSize") or 0)
    most = bounds.get("maxSize")
    return value if most is None else min(value, most)


ROUGH: Final = {
    "kill": 4,
    "kill-all": 1,
    "freeze": 1,
    "unplug": 1,
    "stick": 1,
    "kill-api-server": 1,
    "freeze-etcd": 1,
    "restore": 1,
}
"""Blows that may cost an operator its Lease or its life."""
GENTLE: Final = {
    "scale": 4,
    "template": 1,
    "lose": 2,
    "victims": 2,
    "hostile": 6,
    "greedy": 1,
    "webhook": 2,
    "jump": 2,
    "cut": 2,
    "cut-watches": 2,
    "freeze-kwok": 1,
}


@dataclass(frozen=True, slots=True)
class Blow:
    """What is done next after a pause, for so many seconds; `which` is drawn for it, 0 to 1."""

    pause: float
    kind: str
    seconds: float
    which: float


def rounds(draw: random.Random, *, blows: int) -> Iterator[list[Blow]]:
    """Blows without an end; each kind comes as often as any other of its weight."""
    deck: list[str] = []
    while True:
        dealt = []
        for _ in range(blows):
            if not deck:
                deck = [kind for kind, n in (ROUGH | GENTLE).items() for _ in range(n)]
                draw.shuffle(deck)
            pause, seconds = min(6.0, draw.expovariate(1 / 1.5)), draw.uniform(1, 6)
            dealt.append(Blow(pause, deck.pop(), seconds, draw.random()))
        yield dealt
