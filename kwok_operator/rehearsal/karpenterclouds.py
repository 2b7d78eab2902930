"""Lets the simulated cloud of groups act on the nodes that Karpenter makes of them.

    spec.cloud.interruptions of groups  -->  machines that are interrupted, by the operator's draws
    an outage of all these groups       -->  Ready=False of each class, so Karpenter makes no node
    groups that come, change or go      -->  a caveat, as Karpenter has its instance types by then

A class of Karpenter's kwok provider isn't for certain groups, so an outage of some does nothing.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.draws import group_seed
from kwok_operator.cloud.terms import in_force
from kwok_operator.constants import GROUPS_PATH
from kwok_operator.errors import ApiError, ApiUnreachableError, NotFoundError
from kwok_operator.formats.manifests import condition_is_true
from kwok_operator.formats.times import format_time
from kwok_operator.formats.untyped import value_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.kube.client import MERGE_PATCH, KubeClient
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.rehearsal.interrupting import Interrupter
from kwok_operator.rehearsal.karpenter.groups import unheeded_changes
from kwok_operator.rehearsal.karpenter.nodepools import CLASS_API_VERSION
from kwok_operator.rehearsal.machinelives import NodeLives

CLASSES_PATH: Final = f"/apis/{CLASS_API_VERSION}/kwoknodeclasses"
_LOOK_SECONDS: Final = 1.0
_RETRIES: Final = 3
_MOST_NAMES: Final = 3

Mark = Callable[[str, str], None]


class KarpenterClouds:
    """The clouds of one run. `seed` is the operator's; `mark` records what was done.

    `made_of` returns the groups of which Karpenter has made its instance types, or None; `caveat`
    takes a sentence on what became of them since.
    """

    def __init__(
        self,
        client: KubeClient,
        interrupter: Interrupter,
        *,
        seed: str,
        mark: Mark,
        made_of: Callable[[], Mapping[str, KwokNodeGroupSpec] | None],
        caveat: Callable[[str], None],
    ) -> None:
        self._client = client
        self._interrupter = interrupter
        self._seed = seed
        self._mark = mark
        self._made_of = made_of
        self._caveat = caveat
        self._said = set[str]()
        """The caveats so far."""
        self._lives = NodeLives()
        self._out = frozenset[str]()
        """The groups that were in an outage at the last look."""
        self._not_ready = set[str]()
        """The classes that were made not Ready."""

    async def follow(self) -> NoReturn:
        while True:
            # The next look tries again; if that lasts, others who watch the cluster end the run.
            with suppress(ApiError, ApiUnreachableError):
                await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        listed = (await self._client.get_json(GROUPS_PATH, retries=_RETRIES))["items"]
        there = {str(each["metadata"]["name"]): each for each in listed}
        groups = {
            name: each
            for name, each in there.items()
            if value_at(each, "spec", "autoscaling") is not None
        }
        self._compare(there, groups.keys())
        await self._interrupt(_clouds(groups, seed=self._seed))
        await self._show_outage(groups)

    def _compare(self, there: Mapping[str, Any], scaled: Collection[str]) -> None:
        """Says what became of the groups since Karpenter's start, once."""
        made_of = self._made_of()
        if made_of is None:
            return
        for name in sorted({*made_of, *scaled}):
            if name not in there:
                sentence = f"still makes nodes of KwokNodeGroup {name}, which is deleted"
            elif name not in made_of:
                sentence = f"makes no nodes of KwokNodeGroup {name}, which came after its start"
            else:
                now = KwokNodeGroupSpec.model_validate(there[name].get("spec"))
                fields = ", ".join(_unheeded(made_of[name], now))
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
        self._out = frozenset(n for n, body in groups.items() if condition_is_true(body, "Outage"))
        whole = bool(groups) and self._out == groups.keys()
        if whole or self._not_ready:
            await self._show_in_classes(ready=not whole)
        all_were = bool(before) and before == groups.keys()
        if self._out and self._out != before and not whole and not all_were:
            which = names_in_words(sorted(self._out), most=_MOST_NAMES)
            self._mark("outage without effect on Karpenter", f"{which}; other groups are not out")

    async def _show_in_classes(self, *, ready: bool) -> None:
        """Changes the classes that don't show it yet; others may come during the outage."""
        try:
            listed = (await self._client.get_json(CLASSES_PATH, retries=_RETRIES))["items"]
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
            retries=_RETRIES,
        )


def _unheeded(before: KwokNodeGroupSpec, now: KwokNodeGroupSpec) -> Iterator[str]:
    """Yields the fields that have changed without effect. Those that are looked at here aside, and
    targetSize: its nodes stand beside Karpenter's, and cluster-autoscaler may set it.
    """
    changed = _differences(before.dump(), now.dump())
    one, other = ((each.cloud or Cloud()).dump() for each in (before, now))
    clouds = _differences(one, other)
    changed["cloud"] = {key: value for key, value in clouds.items() if key != "outage"}
    changed.pop("targetSize", None)
    yield from unheeded_changes(changed)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {k: now.get(k) for k in {**before, **now} if before.get(k) != now.get(k)}


def _clouds(groups: Mapping[str, Any], *, seed: str) -> dict[str, Cloud]:
    found = {}
    for name, body in groups.items():
        spec = KwokNodeGroupSpec.model_validate(body.get("spec"))
        cloud = in_force(spec, seed=group_seed(seed, group=name) if seed else None)
        if cloud is not None:
            found[name] = cloud
    return found
