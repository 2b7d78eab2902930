"""Describes why a pydantic model refuses values: field, value, remedy.

ValidationError (pydantic's)  --field_problems-->  FieldProblem, one for each mistake
"""

from collections.abc import Collection, Iterator, Sequence
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kwok_operator.api.base import LABEL_VALUE, QUALIFIED_NAME, QUANTITY
from kwok_operator.errors import one_line
from kwok_operator.formats.words import names_in_words, nearest, shown
from kwok_operator.formats.yamltext import Path, in_words
from kwok_operator.rehearsal.judge.figures import EVENT_COUNT, FIGURES, form_of
from kwok_operator.rehearsal.scenario.expectation import A_TIME, A_WORD
from kwok_operator.rehearsal.scenario.parts import NAME, NODE_PLACE, NoBoundError
from kwok_operator.schema.check import FieldProblem

MOST: Final = 50
_MAX_SENTENCE: Final = 800
_MANY: Final = 2_000
"""With this many known names or more, no similar name is searched for, as that takes too long."""
_PROBLEMS: Final = {
    "dict_type": "is no object of keys and values",
    "tuple_type": "is no list; begin each item with a dash",
    "string_type": "is no text; put it in quotes",
    "bool_type": "is neither true nor false",
    "int_type": "is no whole number, without quotes",
    "int_from_float": "is no whole number",
    "float_type": "is no number, without quotes",
    "finite_number": "is no number that can be meant",
}
"""Sentences by pydantic's type of error."""
_LIMITS: Final = {
    "greater_than": ("gt", "must be more than {}"),
    "greater_than_equal": ("ge", "must be {} or more"),
    "less_than": ("lt", "must be less than {}"),
    "less_than_equal": ("le", "must be {} or less"),
}
_FORMS: Final = {
    NAME: "must have lower-case letters, digits and '-', with a letter or digit at both ends",
    QUALIFIED_NAME: "must be a name, with a domain or without, such as pool or example.com/pool",
    LABEL_VALUE: "can't be the value of a label: letters, digits, '-', '_' and '.'",
    NODE_PLACE: "must be a node of a group by its number from 0 on, such as general/0",
    QUANTITY: "must be a quantity and not negative, such as 8, 500m or 32Gi",
}
_PATTERNS: Final = {
    "nodes": 'must be a number or a share, such as 2 or "20%"',
    "what": "must be KIND/NAME, such as deployment/web",
    "kubernetes": 'must be a minor version, such as "1.36"',
    "selector": "must be a selector of labels, such as pool=spot",
    "figure": "must be the name of a figure, such as pods.running",
}
_NO_OBJECT: Final = ("model_type", "model_attributes_type")
_FEW_FIELDS: Final = 6
_NOT_WRITTEN: Final = ("[key]", A_WORD, A_TIME)
"""Steps in pydantic's paths that aren't in the file."""


def problem(path: Path, sentence: str) -> FieldProblem:
    """Returns a problem with the field at a path. The sentence follows the field's name."""
    where = in_words(path)
    return FieldProblem(path, one_line(f"{where}: {sentence}", limit=_MAX_SENTENCE))


def unknown(path: Path, what: str, known: Collection[str], *, value: object) -> FieldProblem:
    """Returns a problem with a name that doesn't exist. It suggests a similar one, or lists the
    known ones.
    """
    near = nearest(value, known) if isinstance(value, str) and len(known) < _MANY else None
    there = f"there is {names_in_words(sorted(known))}" if known else "there is none"
    hint = f"did you mean {near}?" if near else there
    return problem(path, f"{shown(value)} is no {what}; {hint}")


def field_problems(
    error: ValidationError, model: type[BaseModel], whole: object
) -> list[FieldProblem]:
    """Returns all problems with `whole`, at most MOST, in the order of the fields."""
    every = error.errors(include_url=False)
    places = [each["loc"] for each in every]
    # pydantic reports a list whose items are all wrong as empty, too.
    errors = [
        each
        for each in every
        if each["type"] != "too_short"
        or not any(
            len(at) > len(each["loc"]) and at[: len(each["loc"])] == each["loc"] for at in places
        )
    ]
    problems = [_one(each, model, whole) for each in errors[:MOST]]
    if len(errors) > MOST:
        rest = f"there are {len(errors) - MOST} mistakes more; correct these first"
        problems.append(FieldProblem((), rest))
    return problems


def _one(details: Any, model: type[BaseModel], whole: object) -> FieldProblem:
    path: Path = tuple(step for step in details["loc"] if step not in _NOT_WRITTEN)
    kind, value = details["type"], details["input"]
    if kind == "missing":
        return problem(path, "is missing, and must be given")
    if kind == "extra_forbidden":
        return problem(path, _no_field(str(path[-1]), _fields_at(model, path[:-1])))
    plain = isinstance(value, str | int | float | bool)
    said = f"{shown(value)} " if plain else ""
    if kind in _NO_OBJECT:
        return problem(path, f"{said}{_no_object(value, _fields_at(model, path))}")
    error = details.get("ctx", {}).get("error")
    if isinstance(error, NoBoundError):
        return problem(path, f"{said}{_no_bound(error, whole, path)}")
    return problem(path, f"{said}{_sentence(details, path)}")


def _no_object(value: object, known: Sequence[str]) -> str:
    what = "is empty" if value is None else "is no object"
    return f"{what}; write its fields below it, such as {names_in_words(known, most=_FEW_FIELDS)}"


def _no_bound(error: NoBoundError, whole: Any, path: Path) -> str:
    for step in path[:-1]:
        whole = whole[step]
    figure = EVENT_COUNT if "event" in whole else FIGURES.get(str(whole.get("figure")))
    return str(error) if figure is None else f"is not {form_of(figure)}"


def _sentence(details: Any, path: Path) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if details["input"] is None and kind in _PROBLEMS:
        return "is empty; give it a value"
    if kind in ("enum", "literal_error"):
        return _no_choice(details["input"], str(context["expected"]))
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return words.format(f"{context[key]:,}")
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return _FORMS.get(pattern) or _PATTERNS.get(str(path[-1])) or f"must match {pattern}"
    if kind in ("too_long", "string_too_long"):
        unit = "characters" if isinstance(details["input"], str) else "entries"
        return f"has too many {unit}; at most {context['max_length']:,} are allowed"
    if kind in ("too_short", "string_too_short"):
        unit = "character" if isinstance(details["input"], str) else "entry"
        return f"is empty; give at least one {unit}"
    return _PROBLEMS.get(kind, str(details["msg"]))


def _no_choice(value: object, expected: str) -> str:
    choices = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
    near = nearest(value, choices) if isinstance(value, str) else None
    hint = f"; did you mean {near}?" if near else ""
    return f"must be one of {', '.join(choices)}{hint}"


def _no_field(name: str, known: Collection[str]) -> str:
    near = nearest(name, known)
    if near:
        return f"there is no such field; did you mean {near}?"
    return f"there is no such field; known here: {', '.join(known)}"


def _fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """Returns the names of the fields of the model at a path, as they are written in a file."""
    here: type[BaseModel] | None = model
    for step in path:
        if isinstance(step, int) or here is None:
            continue
        fields = {_written(name, info): info for name, info in here.model_fields.items()}
        here = next(_models(fields[step].annotation), None) if step in fields else None
    return [_written(name, info) for name, info in here.model_fields.items()] if here else []


def _written(name: str, info: Any) -> str:
    return str(info.alias or name)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not None or isinstance(annotation, UnionType | type(Union)):
        for part in get_args(annotation):
            yield from _models(part)
