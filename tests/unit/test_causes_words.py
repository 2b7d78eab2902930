"""How chains of causes are shown: one pod's, and answers by workload."""

import re
from collections.abc import Mapping

import pytest

from kwok_operator.causes import words
from kwok_operator.causes.model import Cause, CauseKind, Chain
from kwok_operator.causes.words import Answers, chain_lines
from kwok_operator.formats.autoscalertexts import GroupRefusal


def chain(
    pod: str,
    kind: CauseKind = CauseKind.REFUSED,
    *,
    waited: float = 1.0,
    of: str = "web",
    phases: Mapping[str, float] | None = None,
    reason: str = "",
) -> Chain:
    cause = Cause(kind, f"{pod} waits", "do it", (GroupRefusal(reason),) if reason else ())
    return Chain(pod, of, "", (), cause, phases or {}, waited)


def answers(*added: Chain) -> Answers:
    found = Answers()
    for each in added:
        found.add(each)
    return found


def test_a_chain_has_its_remedy() -> None:
    assert list(chain_lines(chain("p"))) == ["p of web: p waits", "  to do: do it"]


def test_the_pod_that_waited_longest_is_the_example() -> None:
    found = answers(chain("a"), chain("b", waited=9.0), chain("c", waited=3.0))
    assert "such as b:" in "".join(found.lines())
    for pod, waited in ("d", 20.0), ("e", 5.0):
        found.join(answers(chain(pod, waited=waited)))
        assert "such as d:" in "".join(found.lines())
    assert "web: 5 pods" in "".join(found.lines())


def test_pods_that_ended_count_if_they_waited_and_are_not_worst() -> None:
    ended = answers(*(chain(f"p{n}", CauseKind.ENDED, waited=n) for n in (0.0, 1.0)))
    assert "1 of 1: ended without having run" in "".join(ended.lines())
    assert list(ended.worst(most=9)) == []


def test_the_most_urgent_comes_first() -> None:
    kinds = [CauseKind.NO_AUTOSCALER, CauseKind.REFUSED, CauseKind.NO_STOCK, CauseKind.NEVER]
    found = answers(*(chain(kind, kind, of=kind) for kind in kinds))
    found.add(chain("z1", of="z"))
    found.add(chain("z2", of="z"))
    found.add(chain("r", CauseKind.RUNNING, of="a", waited=99.0))
    order = ["never", "noStock", "z", "refused", "noAutoscaler"]
    assert [line.partition(":")[0] for line in found.worst(most=5)] == order
    shown = [line.partition(":")[0] for line in found.lines() if not line.startswith(" ")]
    assert (shown[0], shown[-1]) == ("z", "a"), "most pods that wait, and none"


def test_pods_with_other_reasons_are_other_answers() -> None:
    found = answers(chain("a", reason="one"), chain("b", reason="two"))
    assert len(re.findall("1 of 2: refused", "".join(found.lines()))) == 2


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "at once"), (5.0, "mostly until a node was")])
def test_where_a_pod_that_ran_waited(seconds: float, text: str) -> None:
    ran = chain("a", CauseKind.RUNNING, phases={"wait.decision": seconds, "wait.boot": 0.0})
    assert text in "".join(answers(ran).lines())


def test_of_many_workloads_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MOST_WORKLOADS", 1)
    three = [chain(f"p{n}", of=f"w{n}") for n in range(3)]
    assert list(answers(*three).lines())[-1] == "and 2 more workloads; name one"
    monkeypatch.setattr(words, "_MOST_KEPT", 1)
    assert next(answers(*three).lines()) == "other workloads: 2 pods"
