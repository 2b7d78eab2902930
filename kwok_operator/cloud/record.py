"""The record in status of instances that have no Node yet, and their phases as computed from it.

    CloudStatus + batches  --CloudRecord--outstanding-->  the phase of each instance
    Decision (stock)       --settled-->                   the record and the batches to write

The record holds the edits of spec.cloud (`terms`), and the serials that found no room or are
undecided, as this depended on other groups. Everything else can be drawn again. The operator and
the shim both compute phases here, so status and cluster-autoscaler get the same.
"""

from collections.abc import (
    Callable,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field, replace
from typing import Final

from kwok_operator.cloud.api.cloud import ErrorClass
from kwok_operator.cloud.api.cloudstatus import MAX_REFUSED, CloudStatus, RefusedRecord
from kwok_operator.cloud.arrival import TRIES_AT_ONCE, retry_span, walk
from kwok_operator.cloud.draws import instance_seed
from kwok_operator.cloud.states import Fault, Phase, State
from kwok_operator.cloud.stock import StockDecision
from kwok_operator.cloud.terms import History
from kwok_operator.cloud.units import ALONE, NO_OUTAGE, Outage, Units
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.nodegroups.api.status import OUTAGE
from kwok_operator.nodegroups.serials import Batch, pack, unpack

_CODE_LENGTH: Final = 64
_MESSAGE_LENGTH: Final = 400
_MOST_READ: Final = 16 * MAX_REFUSED
"""No more records are read: the operator never writes so many, so somebody else did."""
_LIKE_TRIES: Final = 10
"""Walking through one instance costs as much as this many tries."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Serials that got no room in stock or a pool at `since`. If `fault` is None, the decision on
    them is still open."""

    serials: Set[int]
    since: int
    pool: str | None
    reason: str
    fault: Fault | None

    @property
    def likeness(self) -> tuple[str | None, str, Fault | None]:
        """Pool, reason and fault: refusals are joined only if these are equal."""
        return self.pool, self.reason, self.fault

    def joined(self, later: "Refusal") -> "Refusal":
        """Joins this refusal with one of the same pool, reason and fault, and of the same time or a
        later one. The result has the later time."""
        return replace(later, serials=self.serials | later.serials)


@dataclass(frozen=True, slots=True)
class CloudRecord:
    """What status records of a group's cloud: edits of spec.cloud, and serials without room.

    If several `refusals` have a serial, the first counts.
    """

    history: History = field(default_factory=History)
    refusals: tuple[Refusal, ...] = ()

    @classmethod
    def read(cls, status: CloudStatus | None, asked: Iterable[Batch]) -> "CloudRecord":
        """Reads the record from status; entries that the operator can't have written are left out.

        The refusals may have as many serials in all as the batches in `asked`; those beyond that
        are left out, too, as each pass goes through all serials.
        """
        if status is None:
            return cls()
        refusals, room = list[Refusal](), sum(batch.last - batch.first + 1 for batch in asked)
        for record in status.refused[:_MOST_READ]:
            refusal = _read(record)
            if refusal is not None and len(refusal.serials) <= room:
                refusals.append(refusal)
                room -= len(refusal.serials)
        return cls(History.read(status.terms), tuple(refusals))

    def dump(self) -> CloudStatus:
        """The record as status has it, without `instances`, which only people read."""
        return CloudStatus(
            terms=tuple(terms.dump() for terms in self.history.terms),
            refused=tuple(_dump(refusal) for refusal in self.refusals),
        )

    def refused(self, serials: Set[int]) -> frozenset[int]:
        """Returns those of the serials that were refused or are undecided. They take nothing of
        stock or pools."""
        return frozenset().union(*(refusal.serials & serials for refusal in self.refusals))

    @property
    def refused_by_pool(self) -> dict[str, int]:
        """How many instances found no room, by the pool that had none."""
        refused: dict[str, int] = {}
        for refusal in self.refusals:
            if refusal.pool is not None:
                refused[refusal.pool] = refused.get(refusal.pool, 0) + len(refusal.serials)
        return refused

    def asking(self, now: int) -> Iterator[tuple[int, Set[int]]]:
        """Yields serials to decide on now, and since when they wait: those undecided, and those
        whose retry is due.
        """
        for refusal in self.refusals:
            retry = self._retry_at(refusal)
            if refusal.fault is None:
                yield refusal.since, refusal.serials
            elif retry is not None and retry <= now:
                yield retry, refusal.serials

    def settled(self, decision: StockDecision, *, wanted: Set[int], now: int) -> "CloudRecord":
        """Returns the record with what was decided `now` for this group.

        `wanted` are all serials that are requested and have no Node; others are forgotten. Serials
        that stay undecided keep the time since when they wait.
        """
        waited = [(r.since, r.serials) for r in self.refusals if r.fault is None]
        heard, new = frozenset(decision.granted), list[Refusal]()
        if (refused := decision.refused) is not None:
            serials = wanted & frozenset(refused.serials)
            refusal = Refusal(serials, now, refused.pool, refused.reason, refused.fault)
            heard |= serials
            new = [*_since_before(refusal, waited)]
        left, kept = frozenset(wanted) - heard, list[Refusal]()
        for refusal in self.refusals:
            kept.append(replace(refusal, serials=refusal.serials & left))
            left -= kept[-1].serials
        return replace(self, refusals=_joined([r for r in (*kept, *new) if r.serials]))

    def walk(
        self, group: str, *, units: Units = ALONE, out: Outage, now: int
    ) -> Callable[[int, int, Phase | None], Iterator[Phase]]:
        """Returns a function (serial, requested at, known phase or None) that yields phases of an
        instance, as `arrival.walk` does: the last one is its phase now."""

        def steps(serial: int, requested_at: int, before: Phase | None) -> Iterator[Phase]:
            if before is not None and now < before.since:
                before = None
            if before is not None and (before.until is None or now < before.until):
                yield before
                return
            refusal = next((r for r in self.refusals if serial in r.serials), None)
            if refusal is not None:
                yield self._refused(refusal)
                return
            cloud = self.history.at(requested_at)
            unit = units.number(cloud, serial)
            who = instance_seed(cloud, group=group, serial=serial, unit=unit)
            began = out.began(units.places.get(serial))
            for found in walk(self.history, who, requested_at=requested_at, now=now, after=before):
                if found.state is State.DUE and now >= found.since and began is not None:
                    since = max(found.since, began)
                    yield replace(found, state=State.WAITING, since=since, reason=OUTAGE)
                else:
                    yield found

        return steps

    def still(self, phases: Mapping[int, Phase], *, before: "CloudRecord") -> dict[int, Phase]:
        """Returns those of the `phases` that are still valid with this record; they were computed
        with the record `before`."""
        if before.history != self.history:
            return {}
        known = frozenset(phases)
        doubted = before.refused(known) | self.refused(known)
        return {serial: phase for serial, phase in phases.items() if serial not in doubted}

    def _refused(self, refusal: Refusal) -> Phase:
        state = State.WAITING if refusal.fault is None else State.FAILED
        tries = 0 if refusal.fault is None else 1
        until = self._retry_at(refusal)
        return Phase(state, refusal.since, until, refusal.reason, refusal.fault, tries)

    def _retry_at(self, refusal: Refusal) -> int | None:
        span = retry_span(self.history.at(refusal.since)) if refusal.fault else None
        return None if span is None else refusal.since + span


def outstanding(
    record: CloudRecord,
    batches: Iterable[Batch],
    *,
    group: str,
    arrived: Container[int],
    now: int,
    out: Outage = NO_OUTAGE,
    known: Mapping[int, Phase] | None = None,
    units: Units = ALONE,
) -> Iterator[dict[int, Phase]]:
    """Yields the phases, by serial, of the instances that were requested and have no Node.

    It yields parts, each some milliseconds of work; a later part overrides an earlier one. Serials
    to be decided on (`record.asking`) count as refused until `settle` (cloud/room.py) has decided.
    `known` are phases computed before with the same record, dates and outage; going on from them
    saves draws. `units` says which instances draw alike.
    """
    known = known or {}
    steps = record.walk(group, units=units, out=out, now=now)
    part: dict[int, Phase] = {}
    work = 0
    for batch in batches:
        requested_at = parse_time(batch.requested_at)
        for serial in (s for s in batch if s not in arrived):
            before = known.get(serial)
            tries = before.tries if before is not None else 0
            work += _LIKE_TRIES
            for phase in steps(serial, requested_at, before):
                part[serial] = phase
                work, tries = work + max(0, phase.tries - tries), phase.tries
                if work >= TRIES_AT_ONCE:
                    yield part
                    part, work = {}, 0
    yield part


def redated(batches: Iterable[Batch], *, granted: Set[int], at: str) -> tuple[Batch, ...]:
    """Splits batches so that serials that got room (`granted`) are in batches of their own. These
    are dated `at`, when their tries begin.

    The ranges stay in order and don't overlap.
    """
    return tuple(part for batch in batches for part in _split(batch, granted, at))


def _split(batch: Batch, granted: Set[int], at: str) -> Iterator[Batch]:
    parts: list[list[int]] = []
    before: bool | None = None
    for serial in batch:
        moved = serial in granted
        if moved is not before:
            parts.append([])
            before = moved
        parts[-1].append(serial)
    if len(parts) == 1 and parts[0][0] not in granted:
        yield batch
        return
    for part in parts:
        first, last = part[0], part[-1]
        spent = frozenset(s for s in batch.spent if first < s < last)
        yield Batch(first, last, at if first in granted else batch.requested_at, spent)


def _since_before(refusal: Refusal, waited: Sequence[tuple[int, Set[int]]]) -> Iterator[Refusal]:
    """Splits an undecided refusal (one without a fault) by the time since which its serials wait,
    as `waited` has it: (time, serials). Yields a refusal with a fault unchanged."""
    left = refusal.serials
    for since, serials in waited if refusal.fault is None else ():
        yield replace(refusal, serials=left & serials, since=since)
        left -= serials
    yield replace(refusal, serials=left)


def _joined(refusals: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """Joins refusals of the same time, pool, reason and fault; while more than MAX_REFUSED are
    left, also refusals of different times, the closest first.
    """
    at_once: dict[Hashable, Refusal] = {}
    for refusal in sorted(refusals, key=lambda r: (r.since, min(r.serials))):
        key = refusal.since, refusal.likeness
        same = at_once.get(key)
        at_once[key] = refusal if same is None else same.joined(refusal)
    kept = list(at_once.values())
    while len(kept) > MAX_REFUSED:
        last, pairs = dict[Hashable, int](), list[tuple[int, int, int]]()
        for later, refusal in enumerate(kept):
            earlier = last.get(refusal.likeness)
            if earlier is not None:
                pairs.append((refusal.since - kept[earlier].since, earlier, later))
            last[refusal.likeness] = later
        if not pairs:
            break
        _, earlier, later = min(pairs)
        kept[later] = kept[earlier].joined(kept[later])
        del kept[earlier]
    return tuple(sorted(kept, key=lambda r: (r.since, min(r.serials))))


def _dump(refusal: Refusal) -> RefusedRecord:
    fault = refusal.fault
    return RefusedRecord(
        serials=pack(refusal.serials),
        since=format_time(refusal.since),
        pool=refusal.pool,
        reason=refusal.reason,
        error_class=fault.error_class.value if fault else None,
        code=fault.code if fault else None,
        message=fault.message if fault else None,
    )


def _read(record: RefusedRecord) -> Refusal | None:
    fault = None
    try:
        if record.error_class is not None:
            error_class = ErrorClass(record.error_class)
            code = (record.code or error_class.value)[:_CODE_LENGTH]
            fault = Fault(error_class, code, (record.message or "")[:_MESSAGE_LENGTH])
        serials = unpack(record.serials)
        return Refusal(serials, parse_time(record.since), record.pool, record.reason, fault)
    except ValueError:
        return None
