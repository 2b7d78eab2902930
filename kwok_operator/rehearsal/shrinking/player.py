"""Makes the tries: plays documents one after the other, in one control plane that is kept.

    document --> Scenario --keptcluster.py, runner.py--> recording --symptom.py--> Symptom

A run ends as soon as nothing that may come can change how the expectations come out. If the control
plane itself fails, another one is made, and the document is played again.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from kwok_operator.causes.model import Chain
from kwok_operator.controlplane import ControlPlaneError
from kwok_operator.errors import ApiUnreachableError, KwokOperatorError, one_line
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge.figures import FigureScope, Place
from kwok_operator.rehearsal.judge.recording import PodState
from kwok_operator.rehearsal.judge.verdict import judged
from kwok_operator.rehearsal.keptcluster import KeptCluster, kept_cluster
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.progress import Report
from kwok_operator.rehearsal.runner import play
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.shrinking.documents import read_again
from kwok_operator.rehearsal.shrinking.parts import Doc
from kwok_operator.rehearsal.shrinking.symptom import Symptom, symptom_of
from kwok_operator.rehearsal.testbed import FindProgram

_CLUSTERS: Final = 3
"""How many control planes may fail in one try."""
_STEADY_AT_LEAST: Final = 30.0
"""Seconds in which a try may always become steady."""
_TIMES: Final = 3.0
"""A try may take so many times as long as the first one to become steady, and to settle."""


class TryPlayer:
    """Plays documents of one scenario. It is a context manager: the control plane goes with it."""

    def __init__(
        self,
        scenario: Scenario,
        settings: RehearseSettings,
        *,
        folder: Path,
        find_program: FindProgram,
        report: Report,
    ) -> None:
        self._scenario = scenario
        self._settings = settings
        self._folder = folder
        self._find_program = find_program
        self._report = report
        self._stack = AsyncExitStack()
        self._kept: KeptCluster | None = None
        self._first: tuple[float, float] | None = None
        """How long the first run took until its clock started, and after that."""

    async def __aenter__(self) -> "TryPlayer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def kubectl(self) -> AsyncKubectl:
        """Returns kubectl for the control plane. Raises ControlPlaneError, KwokOperatorError."""
        cluster = (await self._cluster()).cluster
        return AsyncKubectl(cluster.kubectl, {"KUBECONFIG": str(cluster.kubeconfig)})

    async def play(self, doc: Doc, *, whole: bool = False) -> Symptom:
        """Plays a document, with `whole` to the end of its run even if nothing can change.

        Raises ControlPlaneError if control planes fail one after the other.
        """
        read = read_again(doc, self._settings.scenario, binaries=self._settings.binaries)
        if read.scenario is None or read.findings:
            return Symptom("; ".join(finding.message for finding in read.findings))
        for attempt in range(_CLUSTERS):
            try:
                return await self._played(read.scenario, whole=whole)
            except (ControlPlaneError, ApiUnreachableError) as error:
                await self._stack.aclose()
                self._kept = None
                if attempt + 1 == _CLUSTERS:
                    raise
                self._report(one_line(f"another control plane is made: {error}", limit=300))
        raise AssertionError

    async def _played(self, scenario: Scenario, *, whole: bool) -> Symptom:
        keeps = range(len(scenario.expect))
        limited = scenario if whole or self._first is None else self._limited(scenario)
        kept = await self._cluster()
        shutil.rmtree(self._folder, ignore_errors=True)
        began = time.monotonic()
        with outputs.begun(self._folder):
            try:
                left = await play(
                    limited,
                    self._settings,
                    folder=self._folder,
                    find_program=self._find_program,
                    report=lambda line: None,
                    show=lambda now: None,
                    kept=kept,
                    enough=() if whole else keeps,
                )
            except (ControlPlaneError, ApiUnreachableError):
                raise
            except KwokOperatorError as error:
                return Symptom(one_line(f"it could not begin: {error}", limit=500))
            if isinstance(left, ControlPlaneError):
                raise left
        path = self._folder / outputs.RECORDING
        with outputs.opened(path) as recording:
            found = judged(recording, name=path.name)
        kept.cluster.check()
        if self._first is None:
            self._first = (time.monotonic() - began - found.t, found.t)
        if found.end.reason == "atMost" and limited.until != scenario.until:
            return Symptom("it takes much longer than the first run")
        return symptom_of(found, keeps, self._chains(path, scenario, keeps))

    def _limited(self, scenario: Scenario) -> Scenario:
        """Returns the scenario with less time than it has, if the first run took much less."""
        assert self._first is not None
        until, (begin, run) = scenario.until, self._first
        update: dict[str, object] = {
            "steady_within": min(scenario.steady_within, max(_TIMES * begin, _STEADY_AT_LEAST))
        }
        longest = _TIMES * run + _STEADY_AT_LEAST
        if (until.settled or until.condition) and longest < until.at_most:
            # Once anything is said of the end, there is no default any more.
            shorter = {"at_most": longest, "settled_for": until.settled}
            update["until"] = until.model_copy(update=shorter)
        return scenario.model_copy(update=update)

    def _chains(
        self, path: Path, scenario: Scenario, keeps: Sequence[int]
    ) -> Mapping[int, Sequence[Chain]]:
        """Returns the pods that each expectation is about, wherever they are."""
        scopes = [
            FigureScope.narrowed(workload=of.workload, namespace=of.namespace)
            for of in (each.of for each in scenario.expect)
        ]
        names: list[set[str]] = [set() for _ in keeps]

        def wanted(name: str, pod: PodState) -> bool:
            place = Place(pod.workload, name.partition("/")[0], rehearsed=pod.rehearsed)
            for some, scope in zip(names, scopes, strict=True):
                if scope.holds(place):
                    some.add(name)
            return True

        found = list(outputs.chains(path, wanted=wanted))
        return {n: [c for c in found if c.pod in some] for n, some in enumerate(names)}

    async def _cluster(self) -> KeptCluster:
        if self._kept is None:
            self._kept = await self._stack.enter_async_context(kept_cluster(self._scenario))
        return self._kept
