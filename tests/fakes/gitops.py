"""Groups as Flux and Argo CD find them in the API server, each with what the two should make of it.

A situation has the words that docs/gitops.md has for it, and a whole object whose status
nodegroups/status.py computed. `every_group` gives far more of them, all that combine.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kwok_operator.nodegroups.api.nodegroup import UpdateStrategyType
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.plan import Limit, Rollout, Target
from kwok_operator.nodegroups.status import Facts, make_status
from tests.fakes.facts import AT_REST
from tests.manifests import group

Object = Mapping[str, Any]

DOC: Final = Path(__file__).parents[2] / "docs" / "gitops.md"

ROLLING: Final = Rollout(UpdateStrategyType.ROLLING_UPDATE, 2)
NO_ROOM: Final = Limit("NodeLimit", "--max-total-nodes of all groups leaves 3 for this one.")
MAX_SIZE: Final = Limit("MaxSize", "autoscaling.maxSize is 3; 9 would be more.")


@dataclasses.dataclass(frozen=True, slots=True)
class Situation:
    """`flux` is the word of kstatus, `argocd` that of Argo CD's health."""

    words: str
    live: Object
    flux: str
    argocd: str


def with_status(facts: Facts, *, generation: int | None = None, **metadata: Any) -> Object:
    """The object of a group with these facts; `generation` is that of the spec, if a newer one."""
    status = make_status(
        facts,
        group="batch",
        previous=KwokNodeGroupStatus(),
        resolved=None,
        now="2026-01-02T03:04:05Z",
    )
    seen = facts.generation if generation is None else generation
    spec = {"paused": facts.paused, "targetSize": facts.target.wanted}
    return {**group(spec, generation=seen, **metadata), "status": status.dump()}


def _such(**changes: Any) -> Object:
    return with_status(dataclasses.replace(AT_REST, **changes))


_DELETED = with_status(AT_REST, deletionTimestamp="2026-01-02T03:04:05Z")
_UNSEEN = group({"targetSize": 3}, generation=1)
_EDITED = with_status(AT_REST, generation=AT_REST.generation + 1)

SITUATIONS: Final = (
    Situation("the operator has not seen the group", _UNSEEN, "Current", "Progressing"),
    Situation("it has not seen the latest change", _EDITED, "InProgress", "Progressing"),
    Situation("nodes are missing", _such(target=Target(5, 5)), "InProgress", "Progressing"),
    Situation("nodes are too many", _such(target=Target(2, 2)), "InProgress", "Progressing"),
    Situation("nodes are not Ready", _such(ready=2), "InProgress", "Progressing"),
    Situation("nodes are updated", _such(rollout=ROLLING, updated=1), "InProgress", "Progressing"),
    Situation("as many nodes as wanted, all Ready", _such(), "Current", "Healthy"),
    Situation(
        "a bound changed the target", _such(target=Target(3, 9, MAX_SIZE)), "Current", "Healthy"
    ),
    Situation(
        "what the template was copied from is gone",
        _such(last_template=("NodeNotFound", "No node fits.")),
        "Current",
        "Healthy",
    ),
    Situation(
        "`--max-total-nodes` leaves no room",
        _such(target=Target(3, 9, NO_ROOM)),
        "InProgress",
        "Progressing",
    ),
    Situation("paused, nothing to do", _such(paused=True), "Current", "Suspended"),
    Situation(
        "paused, nodes are missing",
        _such(paused=True, target=Target(5, 5)),
        "InProgress",
        "Suspended",
    ),
    Situation(
        "no node can be made from the template",
        _such(template_error="spec.template.node is wrong"),
        "Failed",
        "Degraded",
    ),
    Situation(
        "the API server refuses nodes",
        _such(target=Target(5, 5), refusal="exceeded quota"),
        "Failed",
        "Degraded",
    ),
    Situation(
        "no kwok controller keeps the nodes",
        _such(ready=0, kwok_silent="No Lease was renewed."),
        "Failed",
        "Degraded",
    ),
    Situation("on its way out", _DELETED, "Terminating", "Progressing"),
)


def manifests_in_the_docs() -> list[dict[str, Any]]:
    """Every whole object that docs/gitops.md shows."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOC.read_text(), re.MULTILINE | re.DOTALL)
    shown = [document for block in blocks for document in yaml.safe_load_all(block)]
    return [document for document in shown if "kind" in document]


def every_group() -> Iterator[Object]:
    """Each of these things happening to a group, with each of the others and without."""
    choices: Mapping[str, tuple[Any, ...]] = {
        "target": (Target(2, 2), Target(3, 3), Target(5, 5), Target(3, 9, NO_ROOM)),
        "paused": (False, True),
        "ready": (2, 3),
        "leaving": (0, 1),
        "template_error": (None, "broken"),
        "last_template": (None, ("NodeNotFound", "No node fits.")),
        "refusal": (None, "exceeded quota"),
        "kwok_silent": (None, "No Lease was renewed."),
        "rollout": (None, ROLLING),
    }
    for values in itertools.product(*choices.values()):
        facts = dataclasses.replace(AT_REST, **dict(zip(choices, values, strict=True)))
        to_do = facts.leaving or facts.rollout or facts.replicas != facts.target.value
        # Only a write can be refused: the reconciler forgets a refusal when there is none to make.
        if not facts.refusal or (to_do and not facts.paused):
            yield with_status(facts)
