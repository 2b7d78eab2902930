"""Decides which expectations must come out the same while a scenario is shrunk: --keeps names them
by number, by figure or by a part of their text, or spells out a new one.

texts, Scenario --expectations--> the expectations, of the scenario or new ones
"""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from kwok_operator.errors import ManifestError, SettingsError
from kwok_operator.formats.words import shown
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.rehearsal.scenario.expectation import Expectation
from kwok_operator.rehearsal.scenario.problems import field_problems

FLAG = "--keeps"


def expectations(
    given: Sequence[str], expect: Sequence[Expectation], *, raw: Sequence[Any]
) -> list[Any]:
    """Returns the chosen expectations in the form that a document has. `expect` are the scenario's
    expectations, `raw` the same ones in that form, and `given` the values of --keeps.

    A value is the number of an expectation, from 0; or a figure or a part of a text, which chooses
    all expectations that have it; or a new expectation in full, such as `{figure: pods.pending,
    equals: 0}`. Raises SettingsError.
    """
    if not given and len(expect) > 1:
        raise SettingsError(
            f"{FLAG}: the scenario has several expectations; name {_listed(expect)}"
        )
    chosen = [each for text in given for each in _named(text, expect, raw)] or list(raw)
    return [each for number, each in enumerate(chosen) if each not in chosen[:number]]


def _named(text: str, expect: Sequence[Expectation], raw: Sequence[Any]) -> list[Any]:
    if text.strip().startswith("{"):
        return [_new(text)]
    if not text.strip():
        raise SettingsError(f"{FLAG}: '' names no expectation; name {_listed(expect)}")
    if text.isdecimal():
        if int(text) >= len(expect):
            raise SettingsError(f"{FLAG}: there is none with the number {text}; {_listed(expect)}")
        return [raw[int(text)]]
    for fits in (
        lambda each: text == str(each),
        lambda each: text == each.figure,
        lambda each: text in str(each),
    ):
        if fitting := [raw[number] for number, each in enumerate(expect) if fits(each)]:
            return fitting
    raise SettingsError(
        f"{FLAG}: {shown(text)} is no expectation of the scenario, which has {_listed(expect)}; a"
        " new one is written as {figure: pods.pending, equals: 0}"
    )


def _new(text: str) -> Any:
    try:
        documents = load_documents(text, where=FLAG)
    except ManifestError as error:
        raise SettingsError(str(error)) from error
    value = documents[0] if len(documents) == 1 else None
    try:
        Expectation.model_validate(value)
    except ValidationError as error:
        problems = "; ".join(each.message for each in field_problems(error, Expectation, value))
        raise SettingsError(f"{FLAG}: {shown(text)}: {problems}") from error
    return value


def _listed(expect: Sequence[Expectation]) -> str:
    return "; or ".join(f"{number}: {each}" for number, each in enumerate(expect))
