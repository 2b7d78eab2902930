"""Reads what cluster-autoscaler decided, from logs that the user names, or that a dump contains.

settings, facts of a dump  --read_decision-->  Decision, bounds that only the log has, notes
"""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kwok_operator.errors import SettingsError, one_line
from kwok_operator.importing.incidents.calog import LoggedEvent, LogReader
from kwok_operator.importing.incidents.decision import FULL, Decision, decide
from kwok_operator.importing.incidents.logfiles import reading_logs
from kwok_operator.importing.nodes.castatus import ScalingGroup
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.reading import Reading
from kwok_operator.reporter import Reporter

_WRITER: Final = "cluster-autoscaler"
_MIN_SIZE: Final = re.compile(
    r"node group min size reached \(current: [0-9]{1,7}, min: ([0-9]{1,7})\)"
)


async def read_decision(
    logs: Sequence[Path], reading: Reading, *, reporter: Reporter
) -> Decision | None:
    """Returns the decision at the moment of a dump, or at the end of the log; None if neither logs
    nor Events show any. Raises SettingsError for a log that can't be read.
    """
    facts = reading.facts
    events = _events(reading)
    paths = [*(logs or facts.logs)]
    if not paths and not events:
        return None
    at = facts.taken / 1000 if facts.taken else None
    reader: LogReader | None = None
    problems: list[str] = []
    if paths:
        for path in paths:
            reporter.say(one_line(f"reading {path}"))
        reader = LogReader(at=at, near=at or time.time())
        try:
            for _ in reading_logs(paths, reader, problems, given=bool(logs)):
                await asyncio.sleep(0)
        except SettingsError as error:
            if logs:
                raise
            reader, problems = (
                None,
                [str(error)],
            )  # a folder may have the log of a pod that isn't the leader
        if reader is not None and not reader.flags:
            reader.flags = dict(reading.autoscaler_flags)
    # cluster-autoscaler adds no nodes for pods of DaemonSets.
    waiting = [pod for pod in facts.pending if pod.owner[0] != "DaemonSet"]
    pending = {f"{pod.namespace}/{pod.name}" for pod in waiting}
    housed = {f"{pod.namespace}/{pod.name}" for pod in waiting if pod.schedulable}
    # A snapshot alone lacks the pods that fit on no node.
    known = pending or (reading.settings.dumps and not facts.groups)
    # It isn't known whether pods that the import left out were pending.
    partly = bool(reading.settings.namespaces or reading.settings.excluded_namespaces)
    known = known and not partly
    decision = decide(
        reader, events=events, at=at, pending=pending if known else None, housed=housed
    )
    if partly:
        # Without some of the pods, other nodes are unneeded.
        kept = {node: why for node, why in decision.kept.items() if _MIN_SIZE.search(why)}
        decision = replace(decision, accounted=False, removed={}, kept=kept)
    if reader is not None:
        full = {group for group, why in decision.skipped.items() if why == FULL}
        reading.bounds.add_logged(_bounds(reader), full=full, least=_least(decision))
    ref = Ref("Log", "", "cluster-autoscaler")
    for problem in (*problems, *decision.problems):
        reporter.say(one_line(problem))
        reading.notes.append(Note(ref, Reason.LOG_LACKS, detail=one_line(problem, limit=400)))
    return decision


def _events(reading: Reading) -> list[LoggedEvent]:
    return [
        LoggedEvent(
            (each.last or each.first) / 1000,
            f"{each.kind}/{each.namespace}/{each.name}",
            each.reason,
            each.message,
        )
        for each in reading.facts.events
        if each.component == _WRITER
    ]


def _least(decision: Decision) -> dict[str, int]:
    """Returns the minimum size of a node's group, by the name of each node that CA kept because of
    this minimum.
    """
    matches = ((node, _MIN_SIZE.search(why)) for node, why in decision.kept.items())
    return {node: int(match[1]) for node, match in matches if match}


def _bounds(reader: LogReader) -> list[ScalingGroup]:
    """Returns the scaling groups whose maximum size the log shows; an unknown minimum is 0."""
    return [
        ScalingGroup(name, min(reader.least.get(name, 0), most), most)
        for name, most in sorted(reader.most.items())
    ]
