"""What is asked of the cluster itself, in the syntax of `kubectl wait`: whether it can be asked so.

"kng/batch --for=condition=Ready"  --wait_problem-->  a sentence, or nothing
"""

import shlex
from collections.abc import Iterator
from typing import Final

from kwok_operator.core.groupcheck import FieldProblem
from kwok_operator.core.rehearsal.problems import problem
from kwok_operator.core.words import names_in_words, shown
from kwok_operator.core.yamltext import Path
from kwok_operator.models.scenario import Scenario

_TAKES_NO_VALUE: Final = frozenset({"--all", "--all-namespaces", "-A", "--local", "--recursive"})
_OURS: Final = ("--kubeconfig", "--context", "--server", "-s", "--timeout", "--output", "-o")


def wait_checks(scenario: Scenario) -> Iterator[FieldProblem]:
    asked: list[tuple[Path, str | None]] = [
        (("expect", number, "wait"), each.wait) for number, each in enumerate(scenario.expect)
    ]
    for number, step in enumerate(scenario.timeline):
        if step.after is not None:
            asked.append((("timeline", number, "after", "wait"), step.after.wait))
    if scenario.until.condition is not None:
        asked.append((("until", "condition", "wait"), scenario.until.condition.wait))
    for path, text in asked:
        sentence = wait_problem(text) if text is not None else ""
        if sentence:
            yield problem(path, f"{shown(text)} {sentence}")


def wait_problem(text: str) -> str:
    """Why `kubectl wait` can't be asked so; empty where it can."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"can't be split into words ({error}); close the quotes"
    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
    if wrong := [flag for flag in flags if flag in _OURS]:
        own = "write within instead" if wrong[0] == "--timeout" else "it is given by the rehearsal"
        return f"has {wrong[0]}; {own}"
    if "--for" not in flags:
        return "has no --for; write what to wait for, as in kng/batch --for=condition=Ready"
    if words and words[0] in ("kubectl", "wait"):
        return "begins with the command; leave it away, as in kng/batch --for=condition=Ready"
    plain, takes_value = [], False
    for word in words:
        if takes_value:
            takes_value = False
        elif word.startswith("-"):
            takes_value = "=" not in word and word not in _TAKES_NO_VALUE
        else:
            plain.append(word)
    if not plain:
        return "names no object; write which, as in kng/batch --for=condition=Ready"
    if "/" not in plain[0] and len(plain) == 1 and not _selects(flags):
        return f"names all {names_in_words(plain)} or none; add a name, --all or --selector"
    return ""


def _selects(flags: list[str]) -> bool:
    return not {"--all", "--selector", "-l", "--field-selector"}.isdisjoint(flags)
