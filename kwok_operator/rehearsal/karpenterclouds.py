"""Applies the simulated cloud of groups to the nodes that Karpenter makes of them.

    spec.cloud.interruptions of groups  -->  interrupted machines, by the operator's random draws
    an outage of all these groups       -->  Ready=False of each class, so Karpenter makes no node
    groups that are added or changed    -->  a caveat, as Karpenter has its instance types by then

A KWOKNodeClass of Karpenter applies to the nodes of all groups, so an outage of only some groups
has no effect.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.draws import group_seed
from kwok_operator.cloud.terms import in_force
from kwok_operator.errors import ApiError, ApiUnreachableError, NotFoundError
from kwok_operator.formats.times import format_time
from kwok_operator.formats.untyped import condition_of, text_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.kube.client import MERGE_PATCH, KubeClient
from kwok_operator.kube.retry import RETRIES
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import UNIT_OUTAGE, ConditionType
from kwok_operator.rehearsal.interrupting import Interrupter
from kwok_operator.rehearsal.karpenter.groups import differences, unheeded_changes
from kwok_operator.rehearsal.karpenter.nodepools import CLASS_API_VERSION
from kwok_operator.rehearsal.machinelives import NodeLives

CLASSES_PATH: Final = f"/apis/{CLASS_API_VERSION}/kwoknodeclasses"
_LOOK_SECONDS: Final = 1.0
_MOST_NAMES: Final = 3

Mark = Callable[[str, str], None]


class _Group(NamedTuple):
    body: Mapping[str, Any]
    spec: KwokNodeGroupSpec


class KarpenterClouds:
    """The simulated clouds of one run. `seed` is the operator's; `mark` records what was done.

    `groups` returns the bodies of all groups by name; a body is the same object until its group
    changes. `made_of` returns the groups from which Karpenter's instance types were made, None
    before that. `caveat` gets a sentence on each group that was added, changed or deleted later.
    """

    def __init__(
        self,
        client: KubeClient,
        interrupter: Interrupter,
        *,
        groups: Callable[[], Mapping[str, Mapping[str, Any]]],
        seed: str,
        mark: Mark,
        made_of: Callable[[], Mapping[str, KwokNodeGroupSpec] | None],
        caveat: Callable[[str], None],
    ) -> None:
        self._client = client
        self._interrupter = interrupter
        self._groups = groups
        self._known: dict[str, _Group] = {}
        """The groups at the last check, by name."""
        self._clouds: dict[str, Cloud] = {}
        """The clouds of the groups that an autoscaler may scale, by the group's name."""
        self._compared: Mapping[str, KwokNodeGroupSpec] | None = None
        """The groups from which Karpenter's instance types were made, at the last check."""
        self._seed = seed
        self._mark = mark
        self._made_of = made_of
        self._caveat = caveat
        self._said = set[str]()
        """The caveats that were reported so far."""
        self._lives = NodeLives()
        self._out = frozenset[str]()
        """The groups that were in an outage at the last check."""
        self._not_ready = set[str]()
        """The names of the classes that were made not Ready."""

    async def follow(self) -> NoReturn:
        while True:
            # The next check tries again; if errors last, those who watch the cluster end the run.
            with suppress(ApiError, ApiUnreachableError):
                await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        there, made_of = self._groups(), self._made_of()
        if made_of is not self._compared or not _same(there, self._known):
            known = self._known
            self._known = {
                name: known[name] if name in known and known[name].body is body else _read(body)
                for name, body in there.items()
            }
            self._clouds = _clouds(self._scaled(), seed=self._seed)
            self._compared = made_of
            if made_of is not None:
                self._compare(made_of, self._scaled())
        await self._interrupt(self._clouds)
        await self._show_outage({name: self._known[name].body for name in self._scaled()})

    def _scaled(self) -> dict[str, KwokNodeGroupSpec]:
        """Returns the groups that an autoscaler may scale."""
        return {
            n: each.spec for n, each in self._known.items() if each.spec.autoscaling is not None
        }

    def _compare(self, made_of: Mapping[str, KwokNodeGroupSpec], scaled: Collection[str]) -> None:
        """Reports a caveat on each group that was added, changed or deleted after Karpenter's
        start, each only once.
        """
        for name in sorted({*made_of, *scaled}):
            if name not in self._known:
                sentence = f"still makes nodes of KwokNodeGroup {name}, which is deleted"
            elif name not in made_of:
                sentence = f"makes no nodes of KwokNodeGroup {name}, which came after its start"
            else:
                fields = ", ".join(_unheeded(made_of[name], self._known[name].spec))
                if not fields:
                    continue
                sentence = f"heeds no change of KwokNodeGroup {name}: {fields}"
            if sentence not in self._said:
                self._said.add(sentence)
                self._caveat(sentence)

    async def _interrupt(self, clouds: Mapping[str, Cloud]) -> None:
        if all(cloud.interruptions is None for cloud in clouds.values()):
            return
        due = self._lives.due(
            await self._interrupter.claimed(),
            clouds,
            under_notice=self._interrupter.under_notice(),
            now=time.time_ns() // 1_000_000,
        )
        if due:
            await self._interrupter.interrupt(due)
            names = sorted({machine.group for machine, _ in due})
            machines = "1 machine" if len(due) == 1 else f"{len(due)} machines"
            self._mark("interrupt", f"{machines} of {names_in_words(names)}")

    async def _show_outage(self, groups: Mapping[str, Any]) -> None:
        before = self._out
        self._out = frozenset(name for name, body in groups.items() if _is_out(body))
        whole = bool(groups) and self._out == groups.keys()
        if whole or self._not_ready:
            await self._show_in_classes(ready=not whole)
        all_were = bool(before) and before == groups.keys()
        if self._out and self._out != before and not whole and not all_were:
            which = names_in_words(sorted(self._out), most=_MOST_NAMES)
            self._mark("outage without effect on Karpenter", f"{which}; other groups are not out")

    async def _show_in_classes(self, *, ready: bool) -> None:
        """Makes all KWOKNodeClasses not Ready for an outage, or Ready again; also those that were
        added since the last call.
        """
        try:
            listed = (await self._client.get_json(CLASSES_PATH, retries=RETRIES))["items"]
        except NotFoundError:  # Karpenter isn't prepared yet
            return
        there = {str(each["metadata"]["name"]) for each in listed}
        self._not_ready &= there
        for name in sorted(self._not_ready if ready else there - self._not_ready):
            await self._set_ready(name, ready)
            self._not_ready ^= {name}

    async def _set_ready(self, name: str, ready: bool) -> None:
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "Ready" if ready else "Outage",
            "message": "" if ready else "all groups are in an outage",
            "lastTransitionTime": format_time(time.time_ns() // 1_000_000),
        }
        await self._client.request(
            "PATCH",
            f"{CLASSES_PATH}/{name}/status",
            body={"status": {"conditions": [condition]}},
            content_type=MERGE_PATCH,
            retries=RETRIES,
        )


def _is_out(group: Mapping[str, Any]) -> bool:
    """Whether all of the group is in an outage, not only some racks."""
    condition = condition_of(group, ConditionType.OUTAGE)
    return text_at(condition, "status") == "True" and text_at(condition, "reason") != UNIT_OUTAGE


def _unheeded(before: KwokNodeGroupSpec, now: KwokNodeGroupSpec) -> Iterator[str]:
    """Yields the changed fields that have no effect on Karpenter's nodes. Leaves out outages, which
    have an effect, and targetSize, which is about the operator's own nodes and may be changed by
    cluster-autoscaler.
    """
    changed = differences(before.dump(), now.dump())
    one, other = ((each.cloud or Cloud()).dump() for each in (before, now))
    clouds = differences(one, other)
    changed["cloud"] = {key: value for key, value in clouds.items() if key != "outage"}
    changed.pop("targetSize", None)
    yield from unheeded_changes(changed)


def _read(body: Mapping[str, Any]) -> _Group:
    return _Group(body, KwokNodeGroupSpec.model_validate(body.get("spec")))


def _same(there: Mapping[str, Any], known: Mapping[str, _Group]) -> bool:
    return there.keys() == known.keys() and all(
        known[name].body is body for name, body in there.items()
    )


def _clouds(groups: Mapping[str, KwokNodeGroupSpec], *, seed: str) -> dict[str, Cloud]:
    seeds = {name: group_seed(seed, group=name) if seed else None for name in groups}
    clouds = {name: in_force(spec, seed=seeds[name]) for name, spec in groups.items()}
    return {name: cloud for name, cloud in clouds.items() if cloud is not None}
