"""Who listens in tests: to Events, and to the time."""

from dataclasses import dataclass
from typing import cast

from kwok_operator.controller.writers.events import EventType, Recorder, Subject


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

    def emit(self, subject: Subject, kind: EventType, reason: str, message: str) -> None:
        self.said.append(Said(subject.name, kind, reason, message))

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.said]

    def as_recorder(self) -> Recorder:
        return cast(Recorder, self)


class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds
