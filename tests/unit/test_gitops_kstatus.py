"""What Flux makes of a group's status: the rules of kstatus, as sigs.k8s.io/cli-utils has them.

kstatus' rules for any object, in the order in which it asks (cli-utils 0.37.2, kstatus/README.md
and kstatus/status): deletion, generation, Reconciling and Stalled, Ready, and else Current.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from kwok_operator.constants import API_GROUP, API_VERSION, KIND
from tests.fakes.gitops import (
    DOC,
    SITUATIONS,
    Object,
    Situation,
    every_group,
    manifests_in_the_docs,
)


def kstatus(live: Object) -> tuple[str, str]:
    """The word for an object, and the sentence that goes with it."""
    metadata, status = live["metadata"], live.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating", "Resource scheduled for deletion"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata["generation"]:
        return "InProgress", "the latest generation is not observed"
    conditions: list[dict[str, Any]] = status.get("conditions", [])
    for condition in conditions:
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress", condition["message"]
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed", condition["message"]
    for condition in conditions:
        if condition["type"] == "Ready":
            done = condition["status"] == "True"
            return "Current" if done else "InProgress", condition["message"]
    return "Current", "nothing says otherwise"


def holds(live: Object, kind: str) -> bool:
    conditions: list[dict[str, Any]] = live["status"]["conditions"]
    return any((c["type"], c["status"]) == (kind, "True") for c in conditions)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_situation_has_its_word(situation: Situation) -> None:
    assert kstatus(situation.live)[0] == situation.flux


def test_current_means_ready_and_failed_means_stalled_whatever_happens() -> None:
    for live in every_group():
        word, sentence = kstatus(live)
        assert (word == "Current") == holds(live, "Ready"), live
        assert (word == "Failed") == holds(live, "Stalled"), live
        assert sentence


def test_the_docs_have_these_situations_with_these_words() -> None:
    told = re.findall(r"^\| ([^|]+) \| (\w+) \| (\w+) \|$", DOC.read_text(), re.MULTILINE)
    assert told == [(s.words, s.flux, s.argocd) for s in SITUATIONS]


def test_the_expressions_in_the_docs_close_the_gap_and_change_nothing_else() -> None:
    """Flux asks for the generation first; an expression that can't be computed is not fulfilled."""
    (rule,) = [
        rule
        for manifest in manifests_in_the_docs()
        for rule in manifest.get("spec", {}).get("healthCheckExprs", [])
    ]
    assert (rule["apiVersion"], rule["kind"]) == (f"{API_GROUP}/{API_VERSION}", KIND)
    failed, current = _compute(rule["failed"]), _compute(rule["current"])
    for situation in SITUATIONS:
        live = situation.live
        if "status" not in live:
            assert not failed(live) and not current(live), "kstatus alone says Current"
        elif live["status"]["observedGeneration"] == live["metadata"]["generation"]:
            assert failed(live) == (situation.flux == "Failed"), situation.words
            if situation.flux != "Terminating":
                assert current(live) == (situation.flux == "Current"), situation.words


def _compute(expression: str) -> Callable[[Object], bool]:
    """What an expression of the one form that the docs use says; no CEL is needed for it."""
    form = r"status\.conditions\.exists\(c, c\.type == '(\w+)' && c\.status == '(\w+)'\)"
    asked = re.fullmatch(form, expression)
    assert asked, expression

    def answer(live: Object) -> bool:
        conditions = live.get("status", {}).get("conditions", [])
        return any((c["type"], c["status"]) == asked.groups() for c in conditions)

    return answer
