"""Makes the status of a KwokPodProfile, which says whether kwok can play it.

Compiled, problems in the cluster  --profile_status-->  KwokPodProfileStatus
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kwok_operator.formats.words import names_in_words
from kwok_operator.nodegroups.api.status import Verdict, conditions_of
from kwok_operator.podprofiles.api import (
    KwokPodProfileStatus,
    ProfileCondition,
    ProfileConditionType,
)
from kwok_operator.podprofiles.compile import Compiled, ProfileProblem

STAGES_URL: Final = "https://github.com/kubernetes-sigs/kwok/releases/download/v0.8.0"
NO_STAGES: Final = ProfileProblem(
    "NoStageKind",
    "this cluster has no CRD Stage, so kwok plays its own Stages alone: kubectl apply -f"
    f" {STAGES_URL}/kwok.yaml -f {STAGES_URL}/stage-fast.yaml, with a kwok that runs with"
    " --enable-crds=Stage",
)
NO_DEFAULT_STAGES: Final = ProfileProblem(
    "NoDefaultStages",
    "there is no Stage for pods but those of profiles, so pods of no profile don't start: kubectl"
    f" apply -f {STAGES_URL}/stage-fast.yaml",
)
NOT_ALLOWED: Final = ProfileProblem(
    "NotAllowed",
    "the operator may not write Stages: add the component pod-profiles (deploy/components) to its"
    " installation",
)
NAMESPACES_UNKNOWN: Final = ProfileProblem(
    "NamespacesUnknown",
    "the operator can't list namespaces, so spec.namespaceSelector selects none: add the component"
    " pod-profiles (deploy/components) to its installation",
)
NO_USAGE_KIND: Final = ProfileProblem(
    "NoUsageKind",
    "this cluster has no CRD ClusterResourceUsage, so spec.usage has no effect: kubectl apply -f"
    f" {STAGES_URL}/kwok.yaml, with a kwok that runs with --enable-crds=ClusterResourceUsage",
)


USAGE_TOO_LARGE: Final = ProfileProblem(
    "UsageTooLarge",
    "spec.usage has no effect: kwok looks up what pods use in one expression, and profiles that go"
    " before this one, or its own selectors and namespaces, fill that; give it a greater"
    " spec.priority or shorter selectors",
)


def name_taken(kind: str, name: str) -> ProfileProblem:
    return ProfileProblem(
        "NameTaken",
        f"{kind} {name} is there and was made by somebody else, who keeps it: rename that, or this"
        " profile",
    )


def profile_status(
    compiled: Compiled,
    *,
    namespaces: int | None,
    lacking: Sequence[ProfileProblem],
    generation: int,
    previous: Iterable[ProfileCondition],
    now: str,
) -> KwokPodProfileStatus:
    """Returns the status of a profile. `lacking` are the problems because of which its Stages don't
    exist or can't be played; `namespaces` is the number of selected namespaces, None for all of
    them. `now` is RFC 3339."""
    over = compiled.overlapping
    overlapping = Verdict(False, "Alone", "It holds for all pods that it selects.")
    if over:
        message = f"For pods that {names_in_words(over)} selects, that holds."
        overlapping = Verdict(True, "Overlapping", message)
    compiles = Verdict(True, "Compiled", "Its Stages say what its spec says.")
    present = Verdict(True, "Present", "Its Stages are in the cluster, for kwok to play.")
    conditions = conditions_of(
        ProfileCondition,
        {
            ProfileConditionType.COMPILED: _first(compiled.problems) or compiles,
            ProfileConditionType.STAGES_PRESENT: _first(lacking) or present,
            ProfileConditionType.OVERLAPPING: overlapping,
        },
        previous=previous,
        generation=generation,
        now=now,
    )
    return KwokPodProfileStatus(
        observed_generation=generation,
        stages=len(compiled.stages),
        namespaces=namespaces,
        conditions=conditions,
    )


def _first(problems: Sequence[ProfileProblem]) -> Verdict | None:
    if not problems:
        return None
    return Verdict(False, problems[0].reason, "; ".join(each.message for each in problems))
