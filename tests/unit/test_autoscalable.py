"""Whether cluster-autoscaler can drive a group, and what status says of it."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.nodegroups.api.status import Condition, KwokNodeGroupStatus
from kwok_operator.nodegroups.autoscalable import (
    MAX_ANSWER,
    answer_size,
    disagreement,
    gpu_label_in_use,
    hindrance,
)
from kwok_operator.nodegroups.status import make_status
from kwok_operator.shim.messages import CREATING, DELETING, RUNNING, ExternalInstance, instances
from tests.fakes.facts import AT_REST

LABELS = st.dictionaries(
    st.text("abc", min_size=1, max_size=2), st.sampled_from(["x", "y"]), max_size=5
)


def why(group: str = "web", **changes: Any) -> tuple[str, str] | None:
    facts: dict[str, Any] = {"paused": False, "instances": 3, "id_length": 20, "gpu_labels": {}}
    return hindrance(group=group, **(facts | changes))


class TestSize:
    @given(
        count=st.integers(0, 40),
        length=st.integers(1, 300) | st.sampled_from([127, 128, 16_383, 16_384]),
        state=st.sampled_from([RUNNING, CREATING, DELETING]),
    )
    def test_it_is_that_of_the_answer(self, count: int, length: int, state: Any) -> None:
        answer = instances([ExternalInstance("a" * length, state)] * count)
        assert answer_size(count, id_length=length) == len(answer)

    def test_the_longest_names_leave_room_for_more_than_50_000(self) -> None:
        longest = len("kwok:") + 63
        assert answer_size(50_000, id_length=longest) < MAX_ANSWER
        assert answer_size(60_000, id_length=longest) > MAX_ANSWER

    def test_the_sentence_says_how_many_fit(self) -> None:
        found = why(instances=60_000, id_length=100)
        assert found is not None
        reason, sentence = found
        assert reason == "TooManyInstances"
        fit = int(sentence.rpartition("at most ")[2].rstrip("."))
        assert why(instances=fit, id_length=100) is None
        assert why(instances=fit + 1, id_length=100) is not None
        assert sentence.startswith("60000 instances take 6480000 bytes, and ")
        assert f"reads {MAX_ANSWER}: split the group" in sentence


class TestGpuLabels:
    def test_none(self) -> None:
        assert gpu_label_in_use({}) == ""

    @given(LABELS)
    def test_the_first_by_name_counts_in_any_order(self, labels: dict[str, str]) -> None:
        backwards = dict(reversed(labels.items()))
        assert gpu_label_in_use(labels) == gpu_label_in_use(backwards)
        assert gpu_label_in_use(labels) == (labels[sorted(labels)[0]] if labels else "")

    @given(LABELS)
    def test_they_disagree_for_all_that_set_one_or_for_none(self, labels: dict[str, str]) -> None:
        told = {name for name in labels if why(name, gpu_labels=labels) is not None}
        assert told == disagreement(labels).keys()
        assert disagreement(labels) == (labels if len(set(labels.values())) == 2 else {})

    def test_the_sentence_names_the_label_in_use_and_a_few_of_the_others(self) -> None:
        labels = {"alpha": "a.b/gpu", "web": "other"} | {f"z{n}": "a.b/gpu" for n in range(20)}
        assert why(gpu_labels=labels) == (
            "GPULabelsDisagree",
            "cluster-autoscaler knows one GPU label and is told a.b/gpu, that of group alpha. This"
            " group sets other, and another is set by alpha, z0, z1, z10, z11 and 16 more. Give all"
            " groups of a shim the same autoscaling.gpuLabel.",
        )

    def test_a_group_without_one_is_not_concerned(self) -> None:
        assert why(gpu_labels={"a": "x", "b": "y"}) is None


def test_the_worst_comes_first() -> None:
    labels = {"web": "x", "b": "y"}
    paused = why(paused=True, instances=10**6, gpu_labels=labels)
    assert paused is not None
    assert paused[0] == "SpecPaused"
    assert "Set spec.paused to false" in paused[1]
    too_many = why(instances=10**6, gpu_labels=labels)
    assert too_many is not None
    assert too_many[0] == "TooManyInstances"


def conditions(
    previous: KwokNodeGroupStatus | None = None, **changes: Any
) -> tuple[KwokNodeGroupStatus, dict[str, Condition]]:
    status = make_status(
        dataclasses.replace(AT_REST, **changes),
        group="web",
        previous=previous or KwokNodeGroupStatus(),
        resolved=None,
        now="2026-01-02T03:04:05Z",
    )
    return status, {condition.type: condition for condition in status.conditions}


class TestCondition:
    def test_it_holds_where_nothing_is_in_the_way(self) -> None:
        _, found = conditions(autoscaled=True)
        condition = found["Autoscalable"]
        assert (condition.status, condition.reason) == ("True", "Drivable")
        assert condition.message
        assert condition.observed_generation == 7

    def test_it_says_where_a_node_has_to_be_there(self) -> None:
        _, found = conditions(autoscaled=True, known_from_one=True)
        condition = found["Autoscalable"]
        assert (condition.status, condition.reason) == ("True", "FromOneNode")

    def test_else_it_says_what_and_ready_is_as_it_was(self) -> None:
        _, found = conditions(autoscaled=True, hindrance=("TooManyInstances", "Too many. Split."))
        condition = found["Autoscalable"]
        assert (condition.status, condition.reason) == ("False", "TooManyInstances")
        assert condition.message == "Too many. Split."
        assert found["Ready"].status == "True"

    @pytest.mark.parametrize("hindered", [None, ("SpecPaused", "It is paused.")])
    def test_it_goes_with_the_consent(self, hindered: tuple[str, str] | None) -> None:
        before, found = conditions(autoscaled=True, hindrance=hindered)
        assert "Autoscalable" in found
        assert "Autoscalable" not in conditions(before, hindrance=hindered)[1]
