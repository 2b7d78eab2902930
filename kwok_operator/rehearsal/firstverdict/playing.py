"""Plays a rehearsal for each question of a first verdict, one after the other, within a time limit.

    folder of an import  --questions-->  NAME.yaml, played into NAME/  --answers-->  verdict.md

The verdict is written after each run, so if it is interrupted, the answers so far are there.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kwok_operator import controlplane
from kwok_operator.errors import KwokOperatorError, SettingsError, one_line
from kwok_operator.formats.untyped import as_map
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.importing.yamlout import dump
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.firstverdict.answers import (
    WRITER,
    CopyAnswer,
    answer,
    unplayed,
    verdict_json,
    verdict_md,
)
from kwok_operator.rehearsal.firstverdict.questions import (
    AS_IT_STANDS,
    CopyFacts,
    CopyQuestion,
    facts_of,
    questions,
)
from kwok_operator.rehearsal.judge.verdict import Judged
from kwok_operator.rehearsal.keptcluster import KeptClusters
from kwok_operator.rehearsal.loading import load_scenario
from kwok_operator.rehearsal.progress import Report, Say, Show
from kwok_operator.rehearsal.rehearse import LeftBehindError, rehearse
from kwok_operator.rehearsal.scenario.process import DEFAULT_BINARY
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.surroundings import LocalSurroundings
from kwok_operator.signals import cancelled_by_signals

VERDICT: Final = "verdict.md"
_IN_JSON: Final = "verdict.json"
_LEAST_STEADY: Final = 60
"""Seconds that a cluster always has to become steady, even if the time limit is over."""
_OLDEST: Final = 540.0
"""Seconds after which the next question gets a new cluster: cluster-autoscaler takes nodes that are
NotReady, and are older than 15 minutes, for broken ones.
"""
_FIELDS: Final = ("teaches", "cluster", "apply", "placement", "processes", "timeline", "until")
Around = Callable[[RehearseSettings], LocalSurroundings]


@dataclass(frozen=True, slots=True)
class FirstVerdict:
    facts: CopyFacts
    answers: tuple[CopyAnswer, ...] = ()
    left: tuple[str, ...] = ()
    """What could not be deleted or written after a run, as sentences."""
    interrupted: bool = False

    def with_answer(self, answer: CopyAnswer) -> "FirstVerdict":
        """Returns the verdict with this answer in place of an earlier one to the same question."""
        known = self.answers
        same = (answer if each.question.name == answer.question.name else each for each in known)
        return replace(self, answers=tuple(same))


@dataclass(slots=True)
class FirstVerdictPlayer:
    """Plays a rehearsal for each question about the import in `copy`, and writes into `output`. All
    rehearsals must be over at `until`, in seconds of the monotonic clock.
    """

    copy: Path
    output: Path
    around: Around
    report: Report
    until: float
    show: Show | None = None
    say: Say | None = None
    binaries: Mapping[str, Path] = field(default_factory=dict)
    _clusters: KeptClusters = field(
        default_factory=lambda: KeptClusters("rehearsal", same_beginning=True, oldest=_OLDEST)
    )

    async def play(self) -> FirstVerdict:
        """Plays all rehearsals, and returns the verdict. Raises KwokOperatorError."""
        # A signal may come between runs, too, and then the cluster must be deleted.
        with cancelled_by_signals():
            async with self._clusters:
                return await self._play()

    async def _play(self) -> FirstVerdict:
        facts, to_play = self._questions()
        _take(self.output)
        verdict = FirstVerdict(facts, tuple(unplayed(each, "not begun") for each in to_play))
        self._write(verdict)
        longest = 0.0
        for question in to_play:
            if question.zone and time.monotonic() + longest > self.until:
                why = "the time is over; --within gives more"
                verdict = verdict.with_answer(unplayed(question, why))
                continue
            began = time.monotonic()
            verdict = await self._add(question, verdict)
            if verdict.interrupted:
                break
            if question.zone:
                longest = max(longest, time.monotonic() - began)
        self._write(verdict)
        return verdict

    def _questions(self) -> tuple[CopyFacts, list[CopyQuestion]]:
        groups = [each for path in self.copy.glob("nodegroups*.yaml") for each in _read(path)]
        base = as_map(next(iter(_read(self.copy / "scenario.yaml")), None))
        placement = json.loads((self.copy / "placement.json").read_bytes())
        facts = facts_of(groups, as_map(placement))
        if not facts.nodes:
            raise SettingsError(f"{self.copy}: there is no node in it, so nothing can be rehearsed")
        autoscaler = DEFAULT_BINARY in self.binaries
        if autoscaler and not facts.scalable:
            self.report("no group may be scaled, as no bounds are known; --max-size x2 gives them")
        folder = os.path.relpath(self.copy.resolve(), self.output.resolve())
        return facts, questions(facts, base, folder=folder, autoscaler=autoscaler)

    async def _add(self, question: CopyQuestion, verdict: FirstVerdict) -> FirstVerdict:
        """Plays the rehearsal of a question. Writes and returns the verdict with its answer."""
        self.report("")
        self.report(question.scenario["teaches"])
        began = time.monotonic()
        try:
            judged = await self._rehearse(question)
        except LeftBehindError as error:
            judged, verdict = error.judged, replace(verdict, left=(*verdict.left, one_line(error)))
        except KwokOperatorError as error:
            if question.name == AS_IT_STANDS:
                raise
            await self._clusters.aclose()  # the next question gets another cluster
            said = unplayed(question, one_line(error))
            return verdict.with_answer(said)
        with outputs.opened(self.output / question.name) as recording:
            said = answer(
                question,
                judged,
                recording.lines(),
                facts=verdict.facts,
                seconds=time.monotonic() - began,
            )
        interrupted = judged.end.reason == "interrupted"
        verdict = replace(verdict.with_answer(said), interrupted=interrupted)
        self._write(verdict)
        return verdict

    async def _rehearse(self, question: CopyQuestion) -> Judged:
        path = self.output / f"{question.name}.yaml"
        steady = max(round(self.until - time.monotonic()), _LEAST_STEADY)
        scenario = {**question.scenario, "steadyWithin": f"{steady}s"}
        with outputs.writing(self.output):
            outputs.put(path, dump(scenario, first=_FIELDS))
        settings = RehearseSettings(scenario=path, binaries=self.binaries)
        around = self.around(settings)
        read = await asyncio.to_thread(load_scenario, path, around)
        if read.scenario is None or read.findings:
            problems = "; ".join(str(each) for each in read.findings[:3])
            raise SettingsError(f"{path} can't be played: {problems}")
        share = controlplane.CAN_REWIND
        kept = await self._clusters.get(read.scenario, self.report) if share else None
        return await rehearse(
            read.scenario,
            settings,
            folder=self.output / question.name,
            find_program=around.program,
            report=self.report,
            show=self.show,
            say=self.say,
            kept=kept,
        )

    def _write(self, verdict: FirstVerdict) -> None:
        with outputs.writing(self.output):
            text = json.dumps(verdict_json(verdict.facts, verdict.answers), indent=2) + "\n"
            outputs.put(self.output / _IN_JSON, text)
            outputs.put(self.output / VERDICT, verdict_md(verdict.facts, verdict.answers))


def _read(path: Path) -> list[Any]:
    return load_documents(path.read_text(encoding="utf-8"), where=str(path))


def check_folder(folder: Path) -> None:
    """Raises SettingsError unless the folder is missing, empty, or one of an earlier verdict."""
    try:
        there = sorted(each.name for each in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise SettingsError(f"{folder}: {error.strerror or error}; move it") from error
    if there and not _is_ours(folder / _IN_JSON):
        raise SettingsError(
            f"{folder} holds what no rehearsal of an import wrote: {there[0]}; move it, or choose"
            " another --output"
        )


def _take(folder: Path) -> None:
    """Deletes an earlier verdict in the folder, and marks the folder as one of verdicts."""
    check_folder(folder)
    with outputs.writing(folder):
        (folder / VERDICT).unlink(missing_ok=True)
        outputs.put(folder / outputs.GITIGNORE, "*\n")
        outputs.put(folder / _IN_JSON, json.dumps({"writer": WRITER}) + "\n")


def _is_ours(path: Path) -> bool:
    try:
        return as_map(json.loads(path.read_bytes())).get("writer") == WRITER
    except (OSError, ValueError):
        return False
