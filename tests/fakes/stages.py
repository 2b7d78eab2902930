"""kwok's way with a Stage: whether it fits a pod, and when it is played.

jq is evaluated by jq itself, so what comes out here and in kwok's own jq, written in Go, has to be
the same. Templates are not rendered.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jq

from kwok_operator.formats.times import parse_time

Manifest = Mapping[str, Any]


@lru_cache(maxsize=4_096)
def _program(expression: str) -> Any:
    return jq.compile(expression)


def evaluate(expression: str, value: Any) -> list[Any] | None:
    """All that comes out but null; None where it fails."""
    try:
        found = _program(expression).input_value(value).all()
    except ValueError:
        return None
    return [each for each in found if each is not None]


def _meets(requirement: Manifest, pod: Manifest) -> bool:
    found, operator = evaluate(requirement["key"], pod), requirement["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return bool(found) is (operator == "Exists")
    texts = {str(each).lower() if isinstance(each, bool) else each for each in found or ()}
    assert not any(isinstance(text, float | int) for text in texts), "kwok compares no numbers"
    return bool(texts & set(requirement["values"])) is (operator == "In")


def fits(stage: Manifest, pod: Manifest) -> bool:
    selector, labels = stage["spec"]["selector"], pod["metadata"].get("labels") or {}
    wanted = dict(selector.get("matchLabels", {}))
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_meets(each, pod) for each in selector["matchExpressions"])


def fitting(stages: Sequence[Manifest], pod: Manifest) -> list[Manifest]:
    return [stage for stage in stages if fits(stage, pod)]


def played_at(stage: Manifest, pod: Manifest) -> int | None:
    """Milliseconds since the epoch; None is at once."""
    delay = stage["spec"].get("delay")
    if delay is None:
        return None
    found = evaluate(delay["durationFrom"]["expressionFrom"], pod)
    assert found, "kwok would play a Stage whose delay fails at once"
    return parse_time(found[0])
