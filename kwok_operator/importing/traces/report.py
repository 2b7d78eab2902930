"""The report of a replay: how many requests were sent, refused and late."""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.errors import one_line
from kwok_operator.formats.words import names_in_words
from kwok_operator.importing.traces.files import Findings
from kwok_operator.importing.traces.replaying import Replay, Request, Verb

LATE_SECONDS: Final = 0.25
"""A request counts as late if it is sent more than this many seconds after it was due."""
_WORST: Final = 5


@dataclass(slots=True)
class Report:
    """Counts the requests of a replay while they are sent."""

    sent: Counter[Verb] = field(default_factory=Counter)
    left_out: int = 0
    refused: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """Refused requests by verb, kind and status (0: no answer)."""
    examples: dict[tuple[str, str, int], str] = field(default_factory=dict)
    errors: "array[float]" = field(default_factory=lambda: array("f"))
    """For each request, how many seconds after its due time it was sent."""
    worst: list[tuple[float, float, str]] = field(default_factory=list)
    broken: str = ""
    """Why the trace could not be read to its end; empty if it could."""
    interrupted: bool = False

    def refuse(self, request: Request, status: int, message: str) -> None:
        group = (request.verb.value, request.key.kind, status)
        self.refused[group] += 1
        self.examples.setdefault(group, f"{request.key}: {message}")

    def timed(self, request: Request, error: float) -> None:
        self.errors.append(error)
        if error > LATE_SECONDS:
            self.worst.append((error, request.at, f"{request.verb.value} {request.key}"))
            self.worst.sort(reverse=True)
            del self.worst[_WORST:]


def summary(plan: Replay, findings: Findings, report: Report) -> list[str]:
    """Returns the sentences that are printed at the end of a replay."""
    counts = ", ".join(f"{report.sent[verb]:,} {verb.value}" for verb in Verb if report.sent[verb])
    lines = [
        f"sent: {counts or 'nothing'}; left out, as their object isn't there: {report.left_out:,}"
    ]
    if report.errors:
        errors = sorted(report.errors)
        late = sum(error > LATE_SECONDS for error in errors)
        shares = ", ".join(f"{name} {_share(errors, share):.3f} s" for name, share in _SHARES)
        lines.append(
            f"submit-time error: {shares}, max {errors[-1]:.3f} s;"
            f" later than {LATE_SECONDS} s: {late:,} of {len(errors):,}"
        )
    lines += [
        f"  {error:.3f} s late, due at {at:.1f} s: {what}" for error, at, what in report.worst
    ]
    for (verb, kind, status), count in report.refused.most_common():
        why = one_line(report.examples[verb, kind, status], limit=300)
        lines.append(f"refused: {count:,} x {verb} {kind}, {status or 'no answer'}; such as {why}")
    if report.broken:
        lines.append(f"the rest was not played: {report.broken}")
    if report.interrupted:
        lines.append("the rest was not played: it was told to stop")
    seen = plan.seen
    if seen.gaps:
        lines.append(
            f"the trace has {seen.gaps} gaps: something may be missing in {seen.lost:.0f} s,"
            f" {seen.late:,} changes were seen late"
        )
    lines += incomplete(plan, findings)
    if findings.ignored:
        lines.append(
            f"not replayed: {names_in_words([f'{n} {k}' for k, n in findings.ignored.items()])}"
        )
    return lines


def incomplete(plan: Replay, findings: Findings) -> list[str]:
    """Returns sentences on missing parts of the trace."""
    lines = [f"{name} ends in the middle: it was read up to there" for name in findings.cut]
    if plan.seen.missing_parts:
        parts = names_in_words([str(part) for part in plan.seen.missing_parts])
        lines.append(f"parts of the trace are missing: {parts}")
    if not (plan.seen.stopped or findings.cut):
        lines.append(
            "the trace has no end: its recorder was killed or goes on, or later parts are missing"
        )
    return lines


_SHARES: Final = (("p50", 0.5), ("p99", 0.99))


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
