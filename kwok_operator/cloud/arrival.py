"""Computes the phases of an instance from its request to its Node: failing tries, then a success.

    History + instance + when it was requested  --phases-->  Creating, Failed, Creating, ..., Due

Nothing of this is stored: the phases are computed from the request on, and each try draws its
numbers again. Only room in stock and pools depends on other instances: it was granted before
(`stock`), and is kept through all tries.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from kwok_operator.cloud.api.cloud import DEFAULT_RETRY_AFTER, Chance, Cloud, CreationFailure
from kwok_operator.cloud.api.delay import NEVER
from kwok_operator.cloud.draws import SECOND, InstanceSeed, drawn, milliseconds, spans
from kwok_operator.cloud.states import Fault, Phase, State
from kwok_operator.cloud.terms import History
from kwok_operator.nodegroups.serials import names_serial

MAX_TRIES: Final = 10_000
"""An instance that has failed so often is not tried again: with five minutes each, in a month."""
SHORTEST_RETRY: Final = SECOND
TRIES_AT_ONCE: Final = 2_000
"""Tries that are computed without a pause: some milliseconds of work."""
_FAILURE: Final = "creation-failure"
_DELAY: Final = "creation-failure-delay"


def walk(
    history: History, who: InstanceSeed, *, requested_at: int, now: int, after: Phase | None = None
) -> Iterator[Phase]:
    """Yields phases of an instance in order, not all of them; the last is the phase at `now`.

    It starts from `after`, a phase that the instance has passed, or from the request. Each step is
    little work, so that the caller can pause: after a restart there may be 10,000 tries of each
    instance to go through.
    """
    start, failed = _try_after(after) or (requested_at, 0)
    while passed := _passed(history, who, start=start, failed=failed, now=now):
        start, failed = passed
        # A caller that keeps it must take it for over.
        yield Phase(State.CREATING, start, start, "Provisioning", tries=failed)
    for phase in phases(history, who, requested_at=start, failed=failed):
        if phase.until is None or now < phase.until:
            yield phase
            return


def phases(
    history: History, who: InstanceSeed, *, requested_at: int, failed: int = 0
) -> Iterator[Phase]:
    """Yields all phases until the Node is to be created, in order and without gaps.

    The last has no end; phases of no length are left out. If `failed` tries have failed already,
    the next one begins at `requested_at`.
    """
    start = requested_at
    for tries in range(failed, MAX_TRIES):
        cloud = history.at(start)
        rule = _failure(cloud, who, tries=tries)
        if rule is None:
            yield from _success(cloud, who, start=start, tries=tries)
            return
        failed_at = start + drawn(rule.after, who, what=f"{_DELAY}/{tries}")
        if failed_at > start:
            yield Phase(State.CREATING, start, failed_at, "Provisioning", tries=tries)
        retry = retry_span(cloud) if tries + 1 < MAX_TRIES else None
        start = failed_at + (retry or 0)
        fault = Fault.of(rule, cause="the simulated cloud did not create the instance")
        until = None if retry is None else start
        yield Phase(State.FAILED, failed_at, until, "CreationFailed", fault, tries + 1)
        if until is None:
            return


def retry_span(cloud: Cloud) -> int | None:
    """Returns the milliseconds from a failure to the next try; None for never."""
    if cloud.retry_after == NEVER:
        return None
    return max(milliseconds(cloud.retry_after or DEFAULT_RETRY_AFTER), SHORTEST_RETRY)


def happens(chance: Chance | None, who: InstanceSeed, *, what: str) -> bool:
    """Whether `chance` hits the instance: it names the serial, or a random draw decides so. `what`
    is the purpose of the draw; other purposes give other numbers."""
    if chance is None:
        return False
    if names_serial(chance.serials, who.serial):
        return True
    return chance.probability is not None and who.draw(what) < float(chance.probability)


def _try_after(phase: Phase | None) -> tuple[int, int] | None:
    """Returns when the try of this phase begins (after a failed one: the next try), and how many
    tries have failed before it."""
    if phase is not None and phase.state is State.CREATING:
        return phase.since, phase.tries
    if phase is not None and phase.state is State.FAILED and phase.until is not None:
        return phase.until, phase.tries
    return None


def _passed(
    history: History, who: InstanceSeed, *, start: int, failed: int, now: int
) -> tuple[int, int] | None:
    """Skips the tries from `start` that fail before `now`, without computing their phases. Returns
    when the next try begins, and how many tries have failed before it; None if it skips none.

    It skips at most TRIES_AT_ONCE tries, all with the rules of failure that apply at `start`.
    """
    cloud = history.at(start)
    rules, retry, edit = _rules(cloud, failed), retry_span(cloud), history.next_after(start)
    certain = _certain(rules, who)
    failures = _by_chance(rules) if certain is None else [certain]
    if retry is None or not failures or now < start + retry:
        return None
    bounds = [rule.times for rule in rules if rule.times is not None]
    last = min(failed + TRIES_AT_ONCE, MAX_TRIES - 1, *bounds)
    begun, spans = failed, [_span(rule, who) for rule in failures]
    if certain is not None and isinstance(spans[0], int):
        # Counted at once: nothing of them is drawn.
        interval = spans[0] + retry
        tries = min(last - failed, (now - start) // interval)
        tries = tries if edit is None else min(tries, -((start - edit) // interval))
        return (start + tries * interval, failed + tries) if tries else None
    # No draw misses what is certain.
    totals = [1.0] if certain else list(accumulate(float(r.probability or 0) for r in failures))
    draw = who.draws(_FAILURE, most=MAX_TRIES)
    while failed < last and (edit is None or start < edit):
        place = bisect_right(totals, draw(failed))
        if place == len(totals):
            break
        after = spans[place]
        following = start + retry + (after if isinstance(after, int) else after(failed))
        if now < following:
            break
        start, failed = following, failed + 1
    return (start, failed) if failed > begun else None


def _span(rule: CreationFailure, who: InstanceSeed) -> int | Callable[[int], int]:
    """Returns the milliseconds from the start of a try until it fails by this rule; if they are
    drawn, a function that computes them from the number of earlier failed tries."""
    delay = rule.after
    if delay is None or delay.fixed:
        return drawn(delay, who, what="")
    span, draw = spans(delay), who.draws(_DELAY, most=MAX_TRIES)
    return lambda tries: span(draw(tries))


def _success(cloud: Cloud, who: InstanceSeed, *, start: int, tries: int) -> Iterator[Phase]:
    end = start + drawn(cloud.provisioning_delay, who, what=f"provisioning/{tries}")
    if end > start:
        yield Phase(State.CREATING, start, end, "Provisioning", tries=tries)
    if happens(cloud.failures.never_registers, who, what="never-registers"):
        yield Phase(State.UNREGISTERED, end, None, "NeverRegisters", tries=tries)
    else:
        yield Phase(State.DUE, end, None, "Provisioned", tries=tries)


def _failure(cloud: Cloud, who: InstanceSeed, *, tries: int) -> CreationFailure | None:
    """Returns how a try fails: by the first rule that names the serial, else by one drawn by
    probability; None if it doesn't fail."""
    rules = _rules(cloud, tries)
    by_chance = _by_chance(rules)
    certain = _certain(rules, who)
    if certain is not None or not by_chance:
        return certain
    draw, total = who.draw(f"{_FAILURE}/{tries}"), 0.0
    for rule in by_chance:
        total += float(rule.probability or 0)
        if draw < total:
            return rule
    return None


def _rules(cloud: Cloud, tries: int) -> list[CreationFailure]:
    return [r for r in cloud.failures.creation if r.times is None or tries < r.times]


def _certain(rules: Sequence[CreationFailure], who: InstanceSeed) -> CreationFailure | None:
    """Returns the rule by which tries are certain to fail: it names the serial, or its probability
    is 1."""
    named = (rule for rule in rules if names_serial(rule.serials, who.serial))
    by_chance = next(iter(_by_chance(rules)), None)
    sure = by_chance is not None and float(by_chance.probability or 0) >= 1
    return next(named, by_chance if sure else None)


def _by_chance(rules: Sequence[CreationFailure]) -> list[CreationFailure]:
    return [rule for rule in rules if rule.probability is not None]
