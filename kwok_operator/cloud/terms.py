"""The history of spec.cloud, as far as it decides on instances that have no Node yet.

    spec.cloud now + record in status  --revise-->  record to write, with the batches
    record  --History-->  the cloud in force at the start of a try

A try to create an instance follows the spec that was in force when the try began, despite later
edits. So while instances are outstanding, status records the part of the spec that decides on them,
once for each edit, with the time from which the edit holds. A batch of instances doesn't name its
edit: its date shows which edit holds for it. While no instance is outstanding, status has no such
record. The course of an existing node is in its annotation (`life`).
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kwok_operator.cloud.api.cloud import DEFAULT_RETRY_AFTER, Cloud, Failures
from kwok_operator.cloud.api.cloudstatus import TermsRecord
from kwok_operator.cloud.api.delay import NEVER
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec

MAX_TERMS: Final = 8
MAX_BYTES: Final = 4_096
"""The limit of all terms together, as JSON; the newest are kept in any case."""
_PERFECT = Cloud()


@dataclass(frozen=True, slots=True)
class Terms:
    """The part of spec.cloud that applies to tries that begin at `since` or later."""

    since: int
    cloud: Cloud

    def dump(self) -> TermsRecord:
        """Returns these terms in the form that status has."""
        cloud = self.cloud.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
        )
        return TermsRecord(since=format_time(self.since), cloud=cloud)


@dataclass(frozen=True, slots=True)
class History:
    """The terms of a group, the oldest first. Before the first of them the cloud was perfect."""

    terms: tuple[Terms, ...] = ()

    @classmethod
    def always(cls, cloud: Cloud) -> "History":
        """Returns the history of a cloud that was never edited."""
        return cls((Terms(-(2**62), cloud),))

    @classmethod
    def read(cls, records: Iterable[TermsRecord]) -> "History":
        """Reads the newest MAX_TERMS records of status; those that can't be parsed are left out."""
        read = [terms for record in tuple(records)[-MAX_TERMS:] if (terms := _read(record))]
        return cls(tuple(sorted(read, key=lambda terms: terms.since)))

    def at(self, time: int) -> Cloud:
        """Returns the cloud in force at `time`."""
        place = bisect_right(self.terms, time, key=lambda terms: terms.since)
        return self.terms[place - 1].cloud if place else _PERFECT

    def next_after(self, time: int) -> int | None:
        """Returns when other terms replace the cloud in force at `time`; None if none do."""
        place = bisect_right(self.terms, time, key=lambda terms: terms.since)
        return self.terms[place].since if place < len(self.terms) else None

    def revised(
        self, cloud: Cloud | None, *, group: str, now: int, oldest: int | None
    ) -> "History":
        """Returns the history with the present spec, unchanged if there is nothing to record.

        Terms that ended before `oldest`, the time at which the oldest outstanding instance was
        requested, are left out; all are if no instance is outstanding (None). `now` is the time of
        new requests: what is edited in the same second holds for them, too.
        """
        if oldest is None:
            return History()
        part = _PERFECT if cloud is None else asked_part(cloud, group=group)
        terms = [t for t, after in _pairs(self.terms) if after is None or after.since > oldest]
        if part != (terms[-1].cloud if terms else _PERFECT):
            terms = [t for t in terms if t.since < now]
            terms.append(Terms(now, part))
        return History(_bounded(terms))


def in_force(spec: KwokNodeGroupSpec, *, seed: str | None = None) -> Cloud | None:
    """The cloud of a group, None for a perfect one. `seed` is used if the spec has none.

    With spec.autoscaling, `retryAfter` is Never by default: cluster-autoscaler tries again itself.
    """
    cloud = spec.cloud
    if cloud is None:
        return None
    retry_after = DEFAULT_RETRY_AFTER if spec.autoscaling is None else NEVER
    if cloud.retry_after is None:
        cloud = cloud.model_copy(update={"retry_after": retry_after})
    return cloud if cloud.seed or not seed else cloud.model_copy(update={"seed": seed})


def asked_part(cloud: Cloud, *, group: str) -> Cloud:
    """Returns the part of a cloud that decides on instances without a Node. If the cloud has no
    seed, the group's name is the seed."""
    failures = cloud.failures
    return Cloud(
        seed=cloud.seed or group,
        unit=cloud.unit,
        provisioning_delay=cloud.provisioning_delay,
        failures=Failures(creation=failures.creation, never_registers=failures.never_registers),
        retry_after=cloud.retry_after,
    )


def _pairs(terms: Sequence[Terms]) -> Iterable[tuple[Terms, Terms | None]]:
    return zip(terms, [*terms[1:], None], strict=False)


def _bounded(terms: list[Terms]) -> tuple[Terms, ...]:
    """Drops the oldest terms while there are too many. The oldest that are kept then hold from the
    time of the first dropped ones on."""
    while len(terms) > 1 and (len(terms) > MAX_TERMS or _size(terms) > MAX_BYTES):
        terms = [replace(terms[1], since=terms[0].since), *terms[2:]]
    return tuple(terms)


def _size(terms: Sequence[Terms]) -> int:
    return len(json.dumps([t.dump().dump() for t in terms]))


def _read(record: TermsRecord) -> Terms | None:
    try:
        return Terms(parse_time(record.since), Cloud.model_validate(record.cloud))
    except ValueError:
        return None
