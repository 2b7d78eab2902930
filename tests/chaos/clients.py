"""Three users at once, each with a plan, who don't know of each other.

    Step ──> Client ──> API server, told to the ledger before

A client that is refused (gone, there already, against the rules) goes on with its next step, as
somebody with a script would.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.chaos.invariants import Ledger
from tests.chaos.plans import Step
from tests.chaos.world import manifest
from tests.e2e.api import GROUPS, Api, Refused, Unreachable


class Client:
    """Carries out one plan, in a thread of its own."""

    def __init__(
        self, api: Api, ledger: Ledger, *, groups: Sequence[str], draw: random.Random
    ) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._api = api
        self._ledger = ledger
        self._groups = groups
        self._draw = draw

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            time.sleep(step.pause)
            try:
                self._take(step, self._groups[step.group])
                self.done[step.verb] += 1
            except Refused as error:
                self.refused[f"{step.verb} {error.status}"] += 1
            except Unreachable:
                self.refused[f"{step.verb} -"] += 1

    def _take(self, step: Step, group: str) -> None:
        spec: dict[str, Any] = dict(step.spec)
        bounds = spec.get("autoscaling") or {}
        for target in (spec.get("targetSize"), bounds.get("minSize")):
            if target is not None:
                self._ledger.asked(group, target)
        if "maxSize" in bounds:
            self._ledger.limited(group, bounds["maxSize"])
        path = f"{GROUPS}/{group}"
        if step.verb == "create":
            self._api.create(GROUPS, manifest(group, spec))
        elif step.verb == "delete":
            self._api.delete(path)
        elif step.verb == "nodesToDelete":
            self._api.patch(
                path, {"spec": {"scaleDown": {"nodesToDelete": self._victims(step, group)}}}
            )
        else:
            self._api.patch(path, {"spec": spec})

    def _victims(self, step: Step, group: str) -> list[str]:
        there = self._ledger.names_of(group)
        return self._draw.sample(there, min(step.victims, len(there)))
