"""Checks the arguments of `kubectl wait` in a scenario.

"kng/batch --for=condition=Ready"  --wait_problem-->  a sentence, or nothing
"""

import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from kwok_operator.formats.words import names_in_words, nearest, shown
from kwok_operator.rehearsal.scenario.applied import Known
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.problems import problem
from kwok_operator.schema.check import FieldProblem

_TAKES_NO_VALUE: Final = frozenset({"--all", "--all-namespaces", "-A", "--local", "--recursive"})
_NO_WAIT: Final = ("--help", "-h")
_OURS: Final = ("--kubeconfig", "--context", "--server", "-s", "--timeout", "--output", "-o")


def wait_checks(scenario: Scenario, known: Known) -> Iterator[FieldProblem]:
    for path, each in scenario.compared():
        if each.wait is None:
            continue
        sentence = wait_problem(each.wait)
        if not sentence and known.complete:
            sentence = _deletes_nothing(shlex.split(each.wait), _names(scenario, known))
        if sentence:
            yield problem((*path, "wait"), f"{shown(each.wait)} {sentence}")


def wait_problem(text: str) -> str:
    """Returns why `kubectl wait` can't have these arguments; empty if it can."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"can't be split into words ({error}); close the quotes"
    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
    if wrong := [flag for flag in flags if flag in _NO_WAIT]:
        return f"has {wrong[0]}, with which kubectl waits for nothing; take it out"
    if wrong := [flag for flag in flags if flag in _OURS]:
        own = "write within instead" if wrong[0] == "--timeout" else "it is given by the rehearsal"
        return f"has {wrong[0]}; {own}"
    if "--for" not in flags:
        return "has no --for; write what to wait for, as in kng/batch --for=condition=Ready"
    if words and words[0] in ("kubectl", "wait"):
        return "begins with the command; leave it away, as in kng/batch --for=condition=Ready"
    plain = _plain(words)
    if not plain:
        return "names no object; write which, as in kng/batch --for=condition=Ready"
    if "/" not in plain[0] and len(plain) == 1 and not _selects(flags):
        return f"names all {names_in_words(plain)} or none; add a name, --all or --selector"
    return ""


def _plain(words: Sequence[str]) -> list[str]:
    """Returns the words that are neither flags nor values of flags."""
    plain, takes_value = [], False
    for word in words:
        if takes_value:
            takes_value = False
        elif word.startswith("-"):
            takes_value = "=" not in word and word not in _TAKES_NO_VALUE
        else:
            plain.append(word)
    return plain


def _deletes_nothing(words: Sequence[str], names: Collection[str]) -> str:
    """Returns why a `kubectl wait` for a deletion can never fail; empty if it can fail, or if it
    waits for anything but a deletion.

    For kubectl, an object that never existed is deleted. So each name must be one of `names`, or
    one of them followed by a hyphen and more, as names of pods and nodes are.
    """
    if not any(word in ("--for=delete", "delete") for word in words):
        return ""
    plain = _plain(words)
    wanted = [name for word in plain if (name := word.partition("/")[2])] or plain[1:]
    for name in wanted:
        if not any(name == each or name.startswith(f"{each}-") for each in names):
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else "write one that is applied"
            return f"can't fail: there is never a {name}; {hint}"
    return "" if wanted else "can't fail, as what selects nothing is deleted; write names"


def _names(scenario: Scenario, known: Known) -> set[str]:
    return {name for _, _, name in known.objects} | {each.name for each in scenario.workloads}


def _selects(flags: list[str]) -> bool:
    return not {"--all", "--selector", "-l", "--field-selector"}.isdisjoint(flags)
