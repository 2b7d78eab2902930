"""Finds out why pods waited, for a verdict and its report, while a recording is judged.

line --Explainer--> chains --> Answers by the expectations that they are about
                          └--> the chains of the slowest pods, and the refusals of each group
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from kwok_operator.causes.model import Chain
from kwok_operator.causes.recorded import Explainer
from kwok_operator.causes.words import Answers
from kwok_operator.rehearsal.judge.figures import FigureScope, Place
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import RecordedLine, RecordingHeader
from kwok_operator.rehearsal.judge.verdict import Judged, pod_scope

_MOST_CAUSES: Final = 3
"""The most causes that a failed verdict names: nobody reads more at a terminal."""
_ALL: Final = FigureScope()

_Scopes = frozenset[FigureScope]


class WaitReasons:
    def __init__(self, header: RecordingHeader) -> None:
        self._explainer = Explainer(header)
        scopes = {scope for each in header.expect if (scope := pod_scope(each)) is not None}
        self._scopes_of = lru_cache(maxsize=4_096)(lambda place: _holding(scopes, place))
        self._answers = defaultdict[_Scopes, Answers](Answers)
        """Answers by the scopes that contain their pods; only the end shows which are needed."""
        self._slow: dict[str, Chain] = {}
        self._refusals = defaultdict[str, Counter[str]](Counter)

    def moves_on(self, ledger: ClusterLedger, t: float) -> None:
        pass

    def on_line(self, line: RecordedLine, ledger: ClusterLedger) -> None:
        for chain in self._explainer.apply(line):
            self._take(chain)
            if ledger.pods.was_slow(chain.pod):
                self._keep(chain)

    def finish(self, ledger: ClusterLedger) -> None:
        slowest = {pod.name for pod in ledger.pods.slowest(ledger.now)}
        self._slow = {name: chain for name, chain in self._slow.items() if name in slowest}
        for chain in self._explainer.finish(ledger.now):
            self._take(chain)
            if chain.pod in slowest:
                self._keep(chain)

    def added_to(self, judged: Judged) -> Judged:
        """Returns the verdict with the reasons added."""
        failed = {pod_scope(each.expectation) for each in judged.outcomes if not each.held}
        scopes = {scope for scope in failed if scope is not None}
        about = {_ALL} if judged.broken_off else scopes
        return replace(
            judged,
            why=_worst(self._of(about)),
            why_of={scope: _worst(self._of({scope})) for scope in scopes},
            answers=tuple(self._of({_ALL}).lines()),
            chains=self._slow,
            refusals=self._refusals,
        )

    def _take(self, chain: Chain) -> None:
        self._answers[self._scopes_of(place_of(chain))].add(chain)
        for refusal in chain.cause.refusals:
            for group in refusal.names or ("",):
                self._refusals[group][refusal.reason] += 1

    def _keep(self, chain: Chain) -> None:
        if chain.pod not in self._slow or self._slow[chain.pod].waited < chain.waited:
            self._slow[chain.pod] = chain

    def _of(self, scopes: set[FigureScope]) -> Answers:
        """Returns the answers about all pods that any of the scopes contains."""
        answers = Answers()
        for holding, each in self._answers.items():
            if _ALL in scopes or holding & scopes:
                answers.join(each)
        return answers


def place_of(chain: Chain) -> Place:
    """Returns where the pod of a chain belongs, to compare it with a FigureScope."""
    return Place(chain.workload, chain.pod.partition("/")[0], rehearsed=chain.rehearsed)


def _holding(scopes: Iterable[FigureScope], place: Place) -> _Scopes:
    return frozenset(scope for scope in scopes if scope.contains(place))


def _worst(answers: Answers) -> tuple[str, ...]:
    return tuple(answers.worst(most=_MOST_CAUSES))
