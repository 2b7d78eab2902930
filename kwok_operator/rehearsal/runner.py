"""The run of a rehearsal, from its scenario to its recording.

    testbed (cluster, operator) -> apply -> steady -> processes ready -> the clock starts
      workloads arrive      \\
      timeline               }-> until: settled, a condition, at most -> waits of the end
      processes are watched /

Whatever happens, the recording gets its last line, and all started programs are ended.
"""

import asyncio
import shlex
import textwrap
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from kwok_operator.controlplane import ControlPlaneError
from kwok_operator.errors import (
    ApiError,
    ApiUnreachableError,
    KwokOperatorError,
    one_line,
)
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.arriving import TRACE, arrive, make_namespaces
from kwok_operator.rehearsal.beginning import header_of, until_running, until_steady
from kwok_operator.rehearsal.calls import ShimCalls
from kwok_operator.rehearsal.interrupting import Interrupter
from kwok_operator.rehearsal.judge.clocks import ClockOffset, DatedAnswer, moved_by
from kwok_operator.rehearsal.judge.observed import StampClock
from kwok_operator.rehearsal.judge.recording import EndLine, RecordingHeader, WaitLine
from kwok_operator.rehearsal.judge.settling import (
    displaced,
    in_words,
    ready_in_outage,
    still_to_come,
)
from kwok_operator.rehearsal.karpenterclouds import KarpenterClouds
from kwok_operator.rehearsal.keptcluster import KeptCluster
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.logs import ProgramWarnings
from kwok_operator.rehearsal.outages import OutagePlayer
from kwok_operator.rehearsal.placing import place
from kwok_operator.rehearsal.programs import ProgramError
from kwok_operator.rehearsal.progress import Report, Say, Show, in_lines
from kwok_operator.rehearsal.recorder import RunCourse, RunRecorder
from kwok_operator.rehearsal.scenario.expectation import (
    DEFAULT_WAIT,
    AtTime,
    Expectation,
    ScenarioCondition,
)
from kwok_operator.rehearsal.scenario.model import Begin, Scenario
from kwok_operator.rehearsal.scenario.process import Ends, Starts
from kwok_operator.rehearsal.scenario.timeline import Step
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.steps import UnexpectedOutputError, apply, perform
from kwok_operator.rehearsal.testbed import FindProgram, Testbed, testbed

_LOOK_SECONDS: Final = 0.1
_TEXT_WIDTH: Final = 93
_PROGRESS_SECONDS: Final = 0.5
_BLIND_SECONDS: Final = 20.0
_COMPONENTS_SECONDS: Final = 3.0
_ASKED_PATH: Final = "/api/v1/namespaces/default"
_ASK_SECONDS: Final = 10.0
"""How long one `kubectl wait` for a condition may take, in seconds: a busy API server
lists slowly.
"""
_ANSWER_SECONDS: Final = 5.0
"""When a condition ends the run, seconds to wait for pending creations: pods can run before the
call that created them is answered.
"""
_MOST_MOVED: Final = 1.0
"""By how many seconds the cluster's clock may be set during a run."""
_MOVED_ANSWERS: Final = 3
"""So many answers in a row must show that the clock was set: a single one may have been
read late.
"""


class _Died(KwokOperatorError):
    """The run can't go on. The message says why."""


async def play(
    scenario: Scenario,
    settings: RehearseSettings,
    *,
    folder: Path,
    find_program: FindProgram,
    report: Report,
    show: Show | None = None,
    say: Say | None = None,
    kept: KeptCluster | None = None,
    enough: Collection[int] = (),
) -> KwokOperatorError | None:
    """Plays the scenario, and records it in `folder`. Returns the error of clearing up, if any.

    It takes place in a `kept` cluster, if there is one. `enough` are numbers of expectations: once
    all of these are certain, the run ends early. Raises KwokOperatorError if it could not begin,
    and CancelledError if it is cancelled before the clock starts.
    """
    logs = (folder / outputs.LOGS).absolute()  # programs run in the folder of the scenario
    warnings = _warnings(scenario, logs, report=report)
    path = folder / outputs.RECORDING
    run: Rehearsal | None = None
    try:
        async with (
            warnings.shown(),
            testbed(
                scenario,
                settings,
                logs=logs,
                find_program=find_program,
                report=report,
                say=say,
                kept=kept,
            ) as ready,
        ):
            await _set_up(ready, scenario, warnings)
            shown = show or in_lines(report)
            header = await header_of(ready, scenario)
            run = Rehearsal(
                ready, scenario, path, header, warnings, report=report, show=shown, enough=enough
            )
            await run.play()
            report("clearing up")
    except (asyncio.CancelledError, KwokOperatorError) as error:
        if run is None or not run.ended:
            raise
        return error if isinstance(error, KwokOperatorError) else None
    return None


async def _set_up(ready: Testbed, scenario: Scenario, warnings: ProgramWarnings) -> None:
    """Applies objects, waits for a steady cluster, starts processes. Raises KwokOperatorError."""
    within, kept = scenario.steady_within, ready.kept
    if kept is not None and kept.has_begun:
        await until_steady(ready, within=within, tried=True)
    else:
        ready.report("applying what is there at the beginning")
        await make_namespaces(ready, scenario)
        applying = partial(apply, ready, scenario.apply)
        if scenario.placement is not None:
            await place(ready, scenario.placement, apply=applying, within=within)
        else:
            await applying()
            if scenario.apply and scenario.begin is Begin.STEADY:
                await until_steady(ready, within=within)
        if kept is not None and kept.same_beginning:
            await until_running(ready)
            await kept.note_beginning()
    for process in scenario.processes:
        if process.starts is Starts.AT_ONCE:
            ready.report(f"starting {process.name}")
            await ready.start(process)
    _note_caveats(ready, warnings)


def _note_caveats(testbed: Testbed, warnings: ProgramWarnings) -> None:
    """Reports the testbed's caveats, sentences on what users may not expect, as warnings."""
    while testbed.caveats:
        warnings.note(*testbed.caveats.pop(0))


def _warnings(scenario: Scenario, logs: Path, *, report: Report) -> ProgramWarnings:
    """Returns the reader of the programs' warnings. Deletes the logs of an earlier run in the
    folder.
    """
    with outputs.writing(logs):
        for old in logs.glob(f"*{ShimCalls.SUFFIX}"):
            old.unlink()
        return ProgramWarnings(scenario, logs, report=report)


class Rehearsal:
    """One run, from the start of the clock to the end of the recording. It ends earlier once all
    expectations whose numbers are in `enough` are certain.
    """

    def __init__(
        self,
        testbed: Testbed,
        scenario: Scenario,
        path: Path,
        header: RecordingHeader,
        warnings: ProgramWarnings,
        *,
        report: Report,
        show: Show,
        enough: Collection[int] = (),
    ) -> None:
        self._testbed = testbed
        self._scenario = scenario
        self._enough = enough
        self._report, self._show = report, show
        conditions = [
            each for _, each in scenario.compared() if isinstance(each, ScenarioCondition)
        ]
        self._course = RunCourse(path, header, conditions)
        began = time.time_ns() // 1_000_000 - round(self._course.now() * 1_000)
        self._clock = StampClock(began, header.clock or ClockOffset())
        self._recorder = RunRecorder(
            client=testbed.client,
            write=self._course.write,
            clock=self._clock,
            now=self._course.now,
            marked_only=testbed.borrowed is not None,
            karpenter=bool(scenario.karpenters),
            levels=header.topology.levels if header.topology is not None else (),
        )
        self._interrupter = Interrupter(
            testbed.client, seed=scenario.draws_from, of_groups=testbed.borrowed is not None
        )
        self._outages = OutagePlayer(testbed.client, seed=scenario.draws_from)
        self._calls = ShimCalls(testbed.logs, write=self._course.write, now=self._course.now)
        self._warnings = warnings
        self._answered = self._course.now()
        """When the cluster last answered, in seconds since the run began."""
        self._busy = 0
        """How many parts of the scenario are going on: steps, and the arrival of workloads."""
        self._played_at = 0.0
        """When a part of the scenario was last over."""
        self._more = ""
        """What a run that is quiet still waits for before it is settled."""
        self.ended = False
        """Whether the recording is complete."""
        self._unplayed = {n: step.action for n, step in enumerate(scenario.timeline)}
        """The actions of steps that haven't begun, by number."""
        self._to_come = Counter({each.name: each.objects or 1 for each in scenario.workloads})
        """How many objects of each workload aren't created yet; a trace counts as one."""
        self._arrived = asyncio.Event()
        self._done = [asyncio.Event() for _ in scenario.timeline]
        """An event for each step, set once the step is done."""

    async def play(self) -> None:
        """Plays the run to its end. Errors from now on end the run, and are recorded."""
        course = self._course
        reason, detail = "interrupted", ""
        try:
            self._warnings.begin(course.write)
            with course.beginning():
                await self._recorder.start()
            self._report(f"rehearsing {self._scenario.name}")
            async with self._meanwhile():
                over = await self._until_it_is_over()
            # The following questions to the cluster take time that isn't part of the run.
            await self._recorder.stop()
            self._record_logs(last=True)
            course.stop()
            await self._ask_at_the_end()
            reason, detail = over
        except* TimeoutError:
            reason, detail = "died", "the API server doesn't list what is there"
        except* (KwokOperatorError, OSError) as group:
            reason, detail = "died", one_line(_first(group), limit=1_000)
        finally:
            await self._recorder.stop()
            if course.is_on:
                with suppress(OSError):  # the failure that ended the run is more useful
                    self._record_logs(last=True)
            course.write(EndLine(course.now(), reason, detail))
            course.close()
            self.ended = True

    @asynccontextmanager
    async def _meanwhile(self) -> AsyncIterator[None]:
        """Runs watchers, interruptions and the like beside the block. If one fails, all end."""
        async with asyncio.TaskGroup() as tasks:
            going = [
                tasks.create_task(self._course.keep_flushed()),
                tasks.create_task(self._watch_processes()),
                tasks.create_task(self._recorder.follow()),
                tasks.create_task(self._watch_cluster()),
                tasks.create_task(self._watch_components()),
                tasks.create_task(self._ask_cluster()),
                tasks.create_task(self._interrupter.keep()),
                tasks.create_task(self._follow_clouds()),
                tasks.create_task(self._follow_logs()),
                tasks.create_task(self._show_progress()),
            ]
            works = [self._arrive]
            works += [
                partial(self._step, n, step) for n, step in enumerate(self._scenario.timeline)
            ]
            self._busy = len(works)
            going += [tasks.create_task(self._counted(work)) for work in works]
            for number, expected in enumerate(self._scenario.expect):
                if expected.wait is not None and isinstance(expected.when, AtTime):
                    going.append(
                        tasks.create_task(self._wait_at(number, expected, expected.when.at))
                    )
            yield
            for task in going:
                task.cancel()

    async def _follow_clouds(self) -> None:
        """Lets the simulated clouds of groups act on Karpenter's nodes, if Karpenter runs."""
        for name in self._scenario.karpenters:  # there is one at most
            await KarpenterClouds(
                self._testbed.client,
                self._interrupter,
                groups=lambda: self._recorder.groups,
                seed=self._scenario.operators_seed,
                mark=self._course.mark,
                made_of=self._testbed.groups_of_karpenter,
                caveat=partial(self._add_caveat, name),
            ).follow()

    def _add_caveat(self, process: str, sentence: str) -> None:
        self._testbed.caveats.append((process, sentence))

    async def _counted(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._busy -= 1
            self._played_at = self._course.now()

    async def _arrive(self) -> None:
        await arrive(self._testbed, self._course, self._scenario, self._to_come)
        self._arrived.set()
        self._course.mark("all workloads have arrived")

    async def _until_it_is_over(self) -> tuple[str, str]:
        until, course = self._scenario.until, self._course
        while course.now() < until.at_most:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._enough and all(map(course.is_certain, self._enough)):
                return "decided", ""
            if until.condition is not None:
                if await self._holds(until.condition):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._arrived.wait(), _ANSWER_SECONDS)
                    return self._end_of("condition", "")
            elif until.settled is not None and not self._busy and self._is_settled(until.settled):
                return "settled", ""
        return self._end_of("atMost", f"after {until.at_most:g} s")

    def _is_settled(self, seconds: float) -> bool:
        """Whether nothing has changed for `seconds`, nothing is still to come, and a change would
        have been noticed: all watches work, and the API server answers.
        """
        quiet = self._quiet
        self._more = self._still_to_come(quiet) if quiet >= seconds else ""
        settled = quiet >= seconds and not self._more
        return settled and not self._recorder.trouble and self._is_answered

    @property
    def _quiet(self) -> float:
        """The seconds since the last change or step: effects of a step are seen only later."""
        last = max(self._course.changed_at, self._recorder.pools_changed_at, self._played_at)
        return self._course.now() - last

    def _waits_for(self) -> str:
        until = self._scenario.until
        to_play = [f"the arrival of {name}" for name, left in self._to_come.items() if left > 0]
        to_play += [f"timeline[{n}], {action}" for n, action in self._unplayed.items()]
        return in_words(
            condition=str(until.condition or ""),
            settled=until.settled,
            quiet=self._quiet,
            to_play=to_play or ["the end of a step"] * bool(self._busy),
            more=self._more,
        )

    def _still_to_come(self, quiet: float) -> str:
        if self._interrupter.going_on:
            return "the end of machines that have notice"
        ledger, nodes = self._course.ledger, self._recorder.nodes
        evicts_after = self._scenario.evicts_after
        return still_to_come(
            quiet=quiet,
            ready_in_outage=ready_in_outage(self._recorder.groups, nodes),
            displaced=0 if evicts_after is None else displaced(self._recorder.pods, nodes),
            evicts_after=evicts_after,
            under_way=round(ledger.all.claims["underWay"].value),
            left_over=ledger.left_over(),
            gathers=self._scenario.gathers_pods if ledger.all.pods["pending"].value else None,
            consolidates_after=[
                seconds
                for name, seconds in self._recorder.node_pools().items()
                if name in ledger.node_pools and ledger.node_pools[name].nodes["total"].value
            ],
        )

    def _end_of(self, reason: str, detail: str) -> tuple[str, str]:
        """Returns reason and detail of the run's end, for the recording. If a step has not begun,
        or objects of a workload were not created, the reason is `unplayed`, and the detail says
        which; otherwise, both are the given ones.
        """
        after = f"after {self._course.now():.1f} s"
        if self._unplayed:
            number, action = min(self._unplayed.items())
            return "unplayed", f"timeline[{number}], {action}, had not begun {after}"
        for each in self._scenario.workloads:
            if left := self._to_come[each.name]:
                what = f"{left:,} of {each.objects:,} objects of {each.name} had not come"
                if each.arrivals.trace is not None:
                    what = f"the trace of {each.name} had not been played to its end"
                return "unplayed", f"{what} {after}"
        return reason, detail

    async def _holds(self, condition: ScenarioCondition) -> bool:
        if condition.wait is None:
            return self._course.holds(condition)
        left = self._scenario.until.at_most - self._course.now()
        held, _ = await self._ask(condition.wait, within=max(min(_ASK_SECONDS, left), 1.0))
        return held

    async def _step(self, number: int, step: Step) -> None:
        course = self._course
        if step.after is not None:
            while not await self._holds(step.after):  # noqa: ASYNC110 - it drifts with time
                await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.sleep(step.delay)
        elif step.at is not None:
            await asyncio.sleep(max(step.at - course.now(), 0.0))
        else:
            if number:
                await self._done[number - 1].wait()
            if step.settled_for is not None:
                while not self._is_settled(step.settled_for):  # noqa: ASYNC110 - time passes
                    await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.sleep(step.delay)
        self._unplayed.pop(number)
        await self._do(number, step)
        self._done[number].set()

    async def _do(self, number: int, step: Step) -> None:
        course, what = self._course, f"{step.action}"
        if step.say is not None:
            self._say(step.say)
        try:
            if step.outage is not None:
                begun = await self._outages.begin(number, step.outage)
                course.mark("outage begins", f"{begun.what}{begun.short}")
                if step.outage.span is not None:
                    await asyncio.sleep(step.outage.span)
                    course.mark("outage ends", await self._outages.end(begun))
                return
            if step.start is not None:
                (process,) = (p for p in self._scenario.processes if p.name == step.start)
                self._report(f"starting {step.start}")
                await self._testbed.start(process)
                detail = step.start
            elif (machines := step.interrupt or step.lose) is not None:
                detail = await self._interrupter.play(number, machines)
            else:
                detail = await perform(self._testbed, step, dict(self._recorder.nodes))
            course.mark(what, detail)
        except (
            *(CommandError, ProgramError, UnexpectedOutputError),
            *(ApiError, ApiUnreachableError),
        ) as error:
            may_fail = step.run is not None and step.run.may_fail
            if may_fail and not isinstance(error, UnexpectedOutputError):
                course.mark(f"{what} failed", str(error))
                return
            raise _Died(f"timeline[{number}], {what}: {error}") from error

    def _say(self, text: str) -> None:
        title, _, explanation = text.partition("\n")
        say = self._testbed.say
        say("")
        say(title, "bold")
        for line in textwrap.wrap(explanation, _TEXT_WIDTH, break_on_hyphens=False):
            say(f"   {line}")

    async def _watch_processes(self) -> None:
        """Ends the run if a process ends that should not, or fails though it must succeed."""
        ends = {each.name: each.ends for each in self._scenario.processes}
        ended = set[str]()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for name, program in {**self._testbed.programs, **self._testbed.beside}.items():
                # The end of a trace's program is awaited elsewhere, and isn't the end of a process.
                if program.status is None or name in ended or name.startswith(TRACE):
                    continue
                ended.add(name)
                self._course.mark(f"{name} has ended", f"exit status {program.status}")
                end = ends.get(name, Ends.NEVER)
                if end is Ends.NEVER or (end is Ends.MUST and program.status):
                    raise _Died(
                        f"{name} has ended with exit status {program.status}:"
                        f" {program.last_words()} (its log: {program.log})"
                    )

    async def _watch_cluster(self) -> None:
        """Ends the run if a kind can't be watched for _BLIND_SECONDS."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for path, (since, why) in self._recorder.trouble.items():
                if self._course.now() - since > _BLIND_SECONDS:
                    raise _Died(f"{path} can't be watched for {_BLIND_SECONDS:g} s: {why}")

    @property
    def _is_answered(self) -> bool:
        return self._course.now() - self._answered < 2 * _COMPONENTS_SECONDS

    async def _ask_cluster(self) -> None:
        """Ends the run if the API server doesn't answer for _BLIND_SECONDS, which watches don't
        notice; or if a clock was set, as timestamps are converted with the offset of the beginning.
        """
        moved = 0
        while True:
            sent = self._course.now()
            try:
                await self._testbed.client.request("GET", _ASKED_PATH, timeout=_BLIND_SECONDS)
            except ApiUnreachableError as error:
                if self._course.now() - self._answered > _BLIND_SECONDS:
                    raise _Died(f"no answer for {_BLIND_SECONDS:g} s: {error}") from error
            else:
                self._answered = self._course.now()
                by = self._clock_moved_by(sent)
                moved = moved + 1 if abs(by) > _MOST_MOVED else 0
                if moved == _MOVED_ANSWERS:
                    raise _Died(
                        f"the cluster's clock was set by {by:+.0f} s during the run, so its times"
                        " are wrong; play it again once the clock keeps its time (NTP)"
                    )
            await asyncio.sleep(_COMPONENTS_SECONDS)

    def _clock_moved_by(self, sent: float) -> float:
        if (date := self._testbed.client.server_clock.said) is None:
            return 0.0
        # Setting our own clock shows, too: this time began with it, and has been monotonic since.
        began = self._clock.began / 1_000
        answer = DatedAnswer(began + sent, date, began + self._course.now())
        return moved_by(self._clock.offset, answer)

    async def _watch_components(self) -> None:
        """Ends the run if a component has ended: without a scheduler, a cluster would
        look settled.
        """
        while True:
            await asyncio.sleep(_COMPONENTS_SECONDS)
            try:
                self._testbed.check_cluster()
            except ControlPlaneError as error:
                raise _Died(str(error)) from error

    async def _follow_logs(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._record_logs()

    def _record_logs(self, *, last: bool = False) -> None:
        self._calls.look()
        _note_caveats(self._testbed, self._warnings)
        self._warnings.record(self._course.write, t=self._course.now(), last=last)

    async def _ask_at_the_end(self) -> None:
        for number, expected in enumerate(self._scenario.expect):
            if expected.wait is not None and not isinstance(expected.when, AtTime):
                await self._wait_for(number, expected)

    async def _wait_at(self, number: int, expected: Expectation, at: float) -> None:
        await asyncio.sleep(max(at - self._course.now(), 0.0))
        await self._wait_for(number, expected)

    async def _wait_for(self, number: int, expected: Expectation) -> None:
        within = expected.within or DEFAULT_WAIT
        held, said = await self._ask(expected.wait or "", within=within)
        self._course.write(WaitLine(self._course.now(), number, held, said))

    async def _ask(self, question: str, *, within: float) -> tuple[bool, str]:
        try:
            command = ["wait", *shlex.split(question), f"--timeout={within:g}s"]
            said = await self._testbed.kubectl(*command, within=within + 15, kept=True)
        except CommandError as error:
            return False, str(error)
        return True, one_line(said, limit=300)

    async def _show_progress(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            now = self._course.progress()
            left = self._scenario.until.at_most - now.t
            self._show(replace(now, waits_for=self._waits_for(), left=left))


def _first(group: BaseExceptionGroup[KwokOperatorError | OSError]) -> str:
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else str(error)
    return ""
