"""Draws a pod's failures and times: in jq for kwok, and the same in Python.

    who:       the text that is hashed for a pod: ns/name, or ns/job/index for an indexed Job, with
               the number of earlier failures if Kubernetes counts them (backoffLimitPerIndex)
    failures:  the first failure that names the pod's Job index, else at most one, by a draw; drawn
               again after each restart of the container, but a crash loop goes on for ever
    times:     start, init containers, ready and run depend on `who`; the time of a failure also on
               the number of restarts

Without backoffLimitPerIndex, the pods that a Job makes for one index differ only in the random end
of their names. So their failures are drawn by the pod's name: if the index decided, the same index
would fail each time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

from kwok_operator.nodegroups.serials import names_serial, ranges_of
from kwok_operator.podprofiles.api import (
    FAILED_EXIT_CODE,
    KILLED_EXIT_CODE,
    NEVER_START,
    Failure,
    FailureType,
    KwokPodProfileSpec,
)
from kwok_operator.podprofiles.draws import (
    JQ_DEFINITIONS,
    RANGE,
    DrawKey,
    draw,
    jq_draw,
    number_of,
    number_of_try,
)
from kwok_operator.podprofiles.quantiles import Spans, spans
from kwok_operator.podprofiles.selectors import Pod, text

INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
JOB_LABEL: Final = "batch.kubernetes.io/job-name"
ORDINAL_LABEL: Final = "apps.kubernetes.io/pod-index"
FAILED_TRIES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_TRIES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"

FIRST_BACK_OFF: Final = 10_000
LONGEST_BACK_OFF: Final = 300_000
FORGOTTEN_AFTER: Final = 600_000
"""If a container has run longer than this (milliseconds), it is restarted as if it had never
failed."""
_DOUBLINGS: Final = 5
"""After so many doublings, a back-off has reached its greatest length."""
NO_FAILURE: Final = -1

_JQ_JOB = f"(.metadata.labels[{text(INDEX_LABEL)}] and .metadata.labels[{text(JOB_LABEL)}])"
_JQ_WHO = (
    f'def pod_name: .metadata.namespace + "/" + .metadata.name;'
    f' def who: if {_JQ_JOB} then .metadata.namespace + "/"'
    f' + .metadata.labels[{text(JOB_LABEL)}] + "/" + .metadata.labels[{text(INDEX_LABEL)}]'
    f" + ([.metadata.annotations[{text(FAILED_TRIES)}, {text(IGNORED_TRIES)}]"
    f' | select(.) | "/" + .] | add // "")'
    f" else pod_name end | number_of;"
    f" def who_fails: if {_JQ_JOB} and (.metadata.annotations[{text(FAILED_TRIES)}] | not)"
    f" then pod_name | number_of else who end;"
    f" def index: .metadata.labels | .[{text(INDEX_LABEL)}] // .[{text(ORDINAL_LABEL)}] // empty"
    f" | tonumber? // empty;"
    f" def restarts: .status.containerStatuses[0].restartCount // 0;"
)


@dataclass(frozen=True, slots=True)
class Who:
    """The numbers from which a pod's draws are made: `life` for its times, `failures` for its
    failures. `index` is its Job index, None without one."""

    life: int
    failures: int
    index: int | None

    @classmethod
    def of(cls, pod: Pod) -> "Who":
        name = f"{pod.namespace}/{pod.name}"
        index, job = pod.labels.get(INDEX_LABEL), pod.labels.get(JOB_LABEL)
        shown = index if index is not None else pod.labels.get(ORDINAL_LABEL)
        number = int(shown) if shown and shown.isascii() and shown.isdigit() else None
        if index is None or job is None:
            return cls(number_of(name), number_of(name), number)
        tries = [pod.annotations.get(key) for key in (FAILED_TRIES, IGNORED_TRIES)]
        parts = [pod.namespace, job, index, *(text for text in tries if text is not None)]
        life = number_of("/".join(parts))
        return cls(life, number_of(name) if tries[0] is None else life, number)


def exit_code(failure: Failure) -> int:
    if failure.exit_code is not None:
        return failure.exit_code
    return KILLED_EXIT_CODE if failure.type is FailureType.OOM_KILLED else FAILED_EXIT_CODE


def threshold(share: str | None) -> int:
    """Converts a probability (0 to 1, as text) to the number of draws, out of RANGE, that count as
    a hit."""
    return round(float(share or 0) * RANGE)


class Lives:
    """Draws the failures and times of a profile's pods, in Python and as jq."""

    def __init__(self, spec: KwokPodProfileSpec, *, seed: str) -> None:
        self.spec, self._seed = spec, seed
        self.start = spans(spec.start.delay)
        self.inits = tuple(spans(delay) for delay in spec.start.init_containers)
        self.ready = spans(spec.start.ready_delay)
        self.run = None if spec.run.duration is None else spans(spec.run.duration)
        self.termination = spans(spec.termination.delay)
        self.after = tuple(spans(failure.after) for failure in spec.failures)

    def _key(self, use: str) -> DrawKey:
        return DrawKey(self._seed, use)

    def span(self, use: str, table: Spans, number: int) -> int:
        return table.least if table.fixed else table.at(draw(self._key(use), number))

    def init_of(self, position: int, who: Who) -> int:
        """Returns the milliseconds that the init container at `position` runs. The last delay of
        the profile applies to all further init containers."""
        if not self.inits:
            return 0
        table = self.inits[min(position, len(self.inits) - 1)]
        return self.span("init", table, number_of_try(who.life, position))

    def failure(self, who: Who, restarts: int) -> int:
        """Returns the position of the failure that a pod has after `restarts` restarts, or
        NO_FAILURE."""
        for position, each in enumerate(self.spec.failures):
            if who.index is not None and names_serial(each.indexes, who.index):
                return position
        first = self._chosen(number_of_try(who.failures, 0))
        if not restarts or first in self._loops:
            return first
        later = self._chosen(number_of_try(who.failures, restarts))
        return NO_FAILURE if later in self._first_only else later

    @cached_property
    def _loops(self) -> tuple[int, ...]:
        """The positions of the failures that repeat after each restart."""
        return self._of(FailureType.CRASH_LOOP_BACK_OFF)

    @cached_property
    def _first_only(self) -> tuple[int, ...]:
        """The positions of the failures that are drawn only before the first restart."""
        return self._of(*NEVER_START, FailureType.CRASH_LOOP_BACK_OFF)

    def _of(self, *types: FailureType) -> tuple[int, ...]:
        return tuple(i for i, each in enumerate(self.spec.failures) if each.type in types)

    def _chosen(self, number: int) -> int:
        drawn = draw(self._key("failure"), number)
        return next((i for i, end in enumerate(self._ends()) if drawn < end), NO_FAILURE)

    def _ends(self) -> Iterator[int]:
        """Yields the upper bound of each failure's range of draws. The ranges follow one another
        from 0 on, each as wide as the failure is probable; a draw in a range hits its failure."""
        return accumulate(threshold(each.probability) for each in self.spec.failures)

    def after_of(self, position: int, who: Who, restarts: int, *, run: int | None) -> int:
        """Returns the milliseconds from the containers' start until a failure; at most `run`, the
        time that the containers run."""
        after = self.alone(position, who, restarts)
        return after if run is None else min(after, run)

    def alone(self, position: int, who: Who, restarts: int = 0) -> int:
        """Returns the milliseconds from the containers' start until a failure, not limited by the
        length of their run."""
        number = number_of_try(who.failures, restarts)
        return self.span(f"after/{position}", self.after[position], number)

    def run_of(self, who: Who, pod: Pod) -> int | None:
        """Returns the milliseconds that the containers of a pod run; None if they run for ever."""
        if self.run is None or pod.restart_policy == "Always":
            return None
        return self.span("run", self.run, who.life)

    def back_off(self, who: Who, restarts: int, *, run: int | None) -> int:
        """Returns the milliseconds from a container's failure to its restart, the (restarts+1)th
        one.

        As the kubelet does it: 0 for the first and after a long run, then 10 s, doubled each time.
        """

        def long(restart: int) -> bool:
            which = self.failure(who, restart)
            if which == NO_FAILURE:
                return False
            return self.after_of(which, who, restart, run=run) > FORGOTTEN_AFTER

        if restarts == 0 or long(restarts):
            return 0
        before = range(restarts - 1, max(0, restarts - 1 - _DOUBLINGS), -1)
        doublings = next((i for i, each in enumerate(before) if long(each)), len(before))
        return min(LONGEST_BACK_OFF, FIRST_BACK_OFF << doublings)

    # The same functions in jq, applied to the pod.

    def jq(self, expression: str) -> str:
        """Returns the jq expression, with the definitions of all functions that it may use before
        it."""
        return f"{JQ_DEFINITIONS}{_JQ_WHO}{expression}"

    def jq_span(self, use: str, table: Spans, *, who: str = "who") -> str:
        """Returns jq for a span of time in milliseconds; `who` is jq for the number of the pod from
        which it is drawn."""
        if table.fixed:
            return str(table.least)
        return f"({who} | {jq_draw(self._key(use))} | {table.jq()})"

    def jq_init(self, position: str) -> str:
        """Returns jq for the milliseconds that the init container at `position` (jq, too) runs."""
        if not self.inits:
            return "0"
        last = len(self.inits) - 1
        chosen = "".join(
            f"if $i == {i} then {self._jq_init(table)} else "
            for i, table in enumerate(self.inits[:last])
        )
        return f"({position} as $i | {chosen}{self._jq_init(self.inits[last])}{' end' * last})"

    def _jq_init(self, table: Spans) -> str:
        if table.fixed:
            return str(table.least)
        # The position is hashed like the number of a try, so each init container has its own draw
        # with one key.
        return self.jq_span("init", table, who="who | number_of_try($i)")

    def jq_run(self) -> str:
        """Returns jq for the milliseconds that the containers run, null if they run for ever."""
        if self.run is None:
            return "null"
        span = self.jq_span("run", self.run)
        return f'(if .spec.restartPolicy == "Always" then null else {span} end)'

    def jq_failure(self) -> str:
        """Returns jq that defines `failure($restarts)`: the failure's position, or NO_FAILURE."""
        failures = self.spec.failures
        by_index = [
            f"if [index | select({_jq_within(each.indexes)})] != [] then {position} else "
            for position, each in enumerate(failures)
            if each.indexes
        ]
        chosen = "".join(f"if $u < {end} then {i} else " for i, end in enumerate(self._ends()))
        return (
            f"def chosen: {jq_draw(self._key('failure'))} as $u"
            f" | {chosen}{NO_FAILURE}{' end' * len(failures)};"
            f" def failure($restarts): {''.join(by_index)}(who_fails as $n"
            f" | ($n | number_of_try(0) | chosen) as $first"
            f" | if $restarts == 0 or ({_jq_one_of('$first', self._loops)}) then $first"
            f" else ($n | number_of_try($restarts) | chosen) as $later"
            f" | if {_jq_one_of('$later', self._first_only)} then {NO_FAILURE} else $later end end)"
            f"{' end' * len(by_index)};"
        )

    def jq_after_of(self, position: int, *, who: str) -> str:
        """Returns jq for the milliseconds from the containers' start until failure `position`, not
        limited by the length of their run; `who` is jq for the number of the try."""
        return self.jq_span(f"after/{position}", self.after[position], who=who)

    def jq_after(self) -> str:
        """Returns jq that defines `after($f; $restarts)`: milliseconds until failure $f strikes."""
        each = "".join(
            f"if $f == {i} then {self.jq_after_of(i, who='$n')} else "
            for i in range(len(self.after))
        )
        return (
            "def after($f; $restarts): . as $pod | (who_fails | number_of_try($restarts)) as $n"
            f" | {each}0{' end' * len(self.after)}{self._within_run};"
        )

    def jq_after_within_run(self, position: int) -> str:
        """Returns jq for the milliseconds from the containers' start to failure `position`, at most
        the length of the run.
        """
        after = self.jq_after_of(
            position, who="(. as $p | who_fails | number_of_try($p | restarts))"
        )
        return f"(. as $pod | {after}{self._within_run})"

    @property
    def _within_run(self) -> str:
        """Returns jq that limits its input (milliseconds) to the length of the run of $pod."""
        if self.run is None:
            return ""
        return f" | [., ($pod | {self.jq_run()} // infinite)] | min"

    def jq_back_off(self) -> str:
        """Returns jq for the milliseconds from the container's end until it is restarted."""
        steps = [min(LONGEST_BACK_OFF, FIRST_BACK_OFF << i) for i in range(_DOUBLINGS + 1)]
        if all(table.most <= FORGOTTEN_AFTER for table in self.after):
            step = f"{steps}[[$r - 1, {_DOUBLINGS}] | min]"
            return f"(restarts as $r | if $r == 0 then 0 else {step} end)"
        return (
            f"(def long($k): failure($k) as $f | $f != {NO_FAILURE}"
            f" and after($f; $k) > {FORGOTTEN_AFTER};"
            f" . as $pod | restarts as $r | if $r == 0 or long($r) then 0"
            f" else [range($r - 1; [0, $r - {_DOUBLINGS + 1}] | max; -1)] as $before"
            f" | [range($before | length) | select($before[.] as $k | $pod | long($k))][0]"
            f" // ($before | length) | {steps}[.] end)"
        )


def _jq_one_of(value: str, positions: tuple[int, ...]) -> str:
    return " or ".join(f"{value} == {position}" for position in positions) or "false"


def _jq_within(indexes: str | None) -> str:
    ranges = ranges_of(indexes or "")
    return " or ".join(f"(. >= {first} and . <= {last})" for first, last in ranges)
