"""Who listens in tests: to Events, and to the time."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from kwok_operator.kube.events import EventType, Recorder, Subject


@dataclass(frozen=True, slots=True)
class Said:
    """An Event, without the time."""

    about: str
    kind: str
    reason: str
    message: str


class RecordedEvents:
    """In the place of Recorder: keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[Said] = []

    def emit(
        self,
        subject: Subject,
        kind: EventType,
        reason: str,
        message: str,
        *,
        log: Mapping[str, str] | None = None,
    ) -> None:
        self.said.append(Said(subject.name, kind, reason, message))

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.said]

    def as_recorder(self) -> Recorder:
        return cast(Recorder, self)


class Clock:
    """Seconds that pass by sleeping on it, or when a test says so."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def wall(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)
