"""Computes what a run cost, and what more time would cost; lists the groups that got no node.

The cost of a day and of 30 days is extrapolated from the run's average, so it is missing in
verdict.json, and the report calls it extrapolated. A recording doesn't show all reasons why a group
got no node; only those in the recording are listed.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kwok_operator.formats.words import counted, names_in_words
from kwok_operator.nodegroups.api.status import ConditionType
from kwok_operator.rehearsal.judge.figures import in_words
from kwok_operator.rehearsal.judge.recording import GroupState
from kwok_operator.rehearsal.judge.verdict import Judged
from kwok_operator.rehearsal.report.pageparts import marking, subject, table, text, together
from kwok_operator.rehearsal.report.plots import in_time

PRICE: Final = "Price of a node, by the hour"
_NO_GROUP: Final = GroupState()
_HOUR: Final = 3_600.0
_MOST_GROUPS: Final = 60
_MOST_REASONS: Final = 5
_LONG: Final = 1_000
_BAD: Final = (
    (ConditionType.STALLED, "True"),
    (ConditionType.PAUSED, "True"),
    (ConditionType.OUTAGE, "True"),
    (ConditionType.TEMPLATE_RESOLVED, "False"),
    (ConditionType.AUTOSCALABLE, "False"),
)
"""Conditions with the status that keeps an autoscaler from using a group."""
_SHORTEST: Final = 1.0
"""Seconds. The average of a shorter run means nothing."""


def _in_money(judged: Judged, amount: float) -> str:
    """Returns an amount with its currency, if that is known. It has 9 digits at most, as further
    digits are only rounding errors of floats.
    """
    return f"{in_words(float(f'{amount:.9g}'))} {judged.currency}".rstrip()


def money(judged: Judged) -> Iterator[str]:
    """Yields the cost of the run, and per hour, per day and per 30 days."""
    if judged.figures["cost"] is None or judged.t < _SHORTEST:
        return
    last = judged.story.samples[-1]
    cost = last.cost
    an_hour = cost * _HOUR / judged.t
    run, more = in_time(judged.t), "cost" in judged.incomplete
    amounts = {
        f"the run, {run}": cost,
        "an hour, on the run's average": an_hour,
        "an hour, at the prices of the nodes at the end": last.price,
        "a day, extrapolated": an_hour * 24,
        "30 days, extrapolated": an_hour * 24 * 30,
    }
    lacks = " (incomplete)" if more else ""
    rows = [(text(of), together(text(_in_money(judged, n))) + lacks) for of, n in amounts.items()]
    yield from table(("Of", "Cost"), rows)
    unit = "" if judged.currency else " No currency is named."
    yield (
        f'<p class="small">Extrapolated: as if all time went on like the {text(run)} of this run on'
        f" average.{unit}</p>"
    )


def not_grown(judged: Judged) -> Iterator[str]:
    """Yields a table of the groups that got no new node in the run, each with the reasons in the
    recording; also of NodePools, if they launched machines or are named in refusals.
    """
    story, groups = judged.story, judged.story.groups
    pools = [pool for by, pool in story.launched if by == "nodePool" and pool]
    pools += [name for name in judged.refusals if name and name not in groups]
    every = [*(("group", name) for name in groups), *(("nodePool", n) for n in sorted({*pools}))]
    idle = [each for each in every if each not in story.grown]
    rows = [
        (
            text(name if by == "group" else f"NodePool {name}"),
            together(text(node_price(judged, name) if by == "group" else "none")),
            f"{groups[name].target:,}" if by == "group" else "none",
            text("; ".join(_why_not(judged, by, name)), limit=_LONG),
        )
        for by, name in idle[:_MOST_GROUPS]
    ]
    heads = ("Group", PRICE, "Target", "Why, as far as the recording says")
    marks = [marking(subject("group", name)) for _, name in idle[:_MOST_GROUPS]]
    more = len(idle) - len(rows)
    yield from table(heads, rows, more=more, ends_long=True, marks=marks)


def node_price(judged: Judged, group: str) -> str:
    """Returns what a node of a group costs per hour, by its price; `none` if it has no price."""
    state = judged.story.groups.get(group, _NO_GROUP)
    return "none" if state.price is None else _in_money(judged, state.price)


def _why_not(judged: Judged, by: str, name: str) -> Iterator[str]:
    story = judged.story
    group = story.groups.get(name, _NO_GROUP)
    if by == "group" and name in story.deleted:
        yield f"deleted at {in_time(story.deleted[name])}"
    if launched := story.launched[by, name]:
        claims = counted(launched, "NodeClaim")
        yield f"Karpenter launched {claims} for it, and no node came"
    if refusals := judged.refusals.get(name):
        yield from _reasons(refusals)
        return
    codes = story.requests.get(name, Counter[str]())
    if refused := [code for code in codes if code != "OK"]:
        yield f"the autoscaler asked, and the answer was {names_in_words(refused)}"
    elif codes:
        yield "the autoscaler asked, and no node came"
        if failed := sum(group.states.get(state, 0) for state in ("Failed", "Unregistered")):
            yield f"at the end {failed:,} instances had failed"
    elif not launched:
        yield "no autoscaler asked for it"
        bad = [f"{kind} is {wrong}" for kind, wrong in _BAD if group.conditions.get(kind) == wrong]
        if bad:
            yield f"at the end {names_in_words(bad)}"
        if refusals := judged.refusals.get(""):
            listed = ", ".join(_reasons(refusals))
            yield f"of some groups, which it doesn't name, the autoscaler says: {listed}"


def _reasons(said: Counter[str]) -> list[str]:
    often = said.most_common(_MOST_REASONS)
    return [f"{reason} (pods: {count:,})" for reason, count in often]
