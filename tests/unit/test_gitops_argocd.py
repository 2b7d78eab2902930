"""The health check for Argo CD that docs/gitops.md gives, run by a real Lua.

Argo CD embeds a Lua 5.1 and asks for the check of a kind by the key
`resource.customizations.health.<group>_<kind>` of the ConfigMap argocd-cm. It answers itself for an
object on its way out.
"""

from typing import Any

import pytest
from lupa.lua51 import LuaRuntime

from kwok_operator.constants import API_GROUP, KIND
from tests.fakes.gitops import SITUATIONS, Object, Situation, every_group, manifests_in_the_docs
from tests.manifests import group

KEY = f"resource.customizations.health.{API_GROUP}_{KIND}"
WORDS = {"Healthy", "Progressing", "Degraded", "Suspended"}
"""What a check may say; Argo CD makes Unknown of any other word."""


def the_check() -> str:
    maps = [m["data"] for m in manifests_in_the_docs() if m["kind"] == "ConfigMap"]
    (check,) = [data[KEY] for data in maps if KEY in data]
    assert isinstance(check, str)
    return check


CHECK = the_check()


def health(live: Object) -> tuple[str, str]:
    """What Argo CD shows: the word and the sentence."""
    if live["metadata"].get("deletionTimestamp"):
        return "Progressing", "Pending deletion"
    lua = LuaRuntime(unpack_returned_tuples=True)
    known = {"_G", "next", "pairs", "ipairs", "type", "tostring", "tonumber", "table"}
    names = lua.globals()
    for name in list(names.keys()):
        if name not in known:
            names[name] = None
    names["obj"] = lua.table_from(live, recursive=True)
    answer: Any = lua.execute(CHECK)
    return answer["status"], answer["message"]


def holds(live: Object, kind: str) -> bool:
    conditions: list[dict[str, Any]] = live["status"]["conditions"]
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_situation_has_its_word_and_a_sentence(situation: Situation) -> None:
    word, sentence = health(situation.live)
    assert word == situation.argocd
    assert sentence


def test_degraded_says_what_to_do() -> None:
    for situation in SITUATIONS:
        if situation.argocd == "Degraded":
            stalled = [c for c in situation.live["status"]["conditions"] if c["type"] == "Stalled"]
            assert health(situation.live)[1] == stalled[0]["message"]


def test_the_words_mean_the_same_whatever_happens() -> None:
    for live in every_group():
        word = health(live)[0]
        stalled, paused = holds(live, "Stalled"), holds(live, "Paused")
        assert word in WORDS
        assert (word == "Degraded") == stalled, live
        assert (word == "Suspended") == (paused and not stalled), live
        assert (word == "Healthy") == (holds(live, "Ready") and not paused and not stalled), live


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"observedGeneration": 1},
        {"conditions": []},
        {"observedGeneration": 1, "conditions": []},
        {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "Unknown"}]},
        {"observedGeneration": 1, "conditions": [{"type": "Other", "status": "True"}]},
        {"observedGeneration": 0, "conditions": [{"type": "Ready", "status": "True"}]},
        {"conditions": [{"type": "Ready", "status": "True"}]},
    ],
)
def test_what_it_does_not_know_is_progressing(status: dict[str, Any]) -> None:
    word, sentence = health({**group({}, generation=1), "status": status})
    assert word == "Progressing"
    assert sentence
