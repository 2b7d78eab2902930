"""What import-linter's contracts in pyproject.toml can't hold.

Which folder may import which is checked by `make lint`.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import grimp
import pytest

PACKAGE = "kwok_operator"
ROOT = Path(__file__).resolve().parents[2]
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60

_IMPURE_CALLS = frozenset({"open", "print", "input", "breakpoint", "exec", "eval", "__import__"})
_CLOCK_METHODS = frozenset({"now", "utcnow", "today"})


def contract(words: str) -> dict[str, Any]:
    """The contract of pyproject.toml whose name begins so."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return next(each for each in contracts if each["name"].startswith(words))


PURITY = contract("What is pure")


def modules(*roots: str) -> dict[str, str]:
    """The source of each module, by its dotted name."""
    paths = sorted(path for root in roots for path in (ROOT / root).rglob("*.py"))
    dotted = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return {
        name.removesuffix(".__init__"): path.read_text(encoding="utf-8")
        for name, path in zip(dotted, paths, strict=True)
    }


class Contents(NamedTuple):
    functions: list[tuple[str, int]]
    """With how many lines each has."""
    classes: list[str]
    impure_calls: list[str]
    """Those that need no import, or the import of a module that is pure otherwise."""


@cache
def contents(source: str) -> Contents:
    found = Contents([], [], [])
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.functions.append((name, (node.end_lineno or node.lineno) - node.lineno + 1))
            case ast.ClassDef(name=name):
                found.classes.append(name)
            case ast.Call(func=ast.Name(id=name)) if name in _IMPURE_CALLS:
                found.impure_calls.append(name)
            case ast.Call(func=ast.Attribute(attr=name, value=owner)) if (
                name in _CLOCK_METHODS and ast.unparse(owner).split(".")[-1] in ("datetime", "date")
            ):
                found.impure_calls.append(f"{ast.unparse(owner)}.{name}")
    return found


def too_long(source: str) -> Iterator[str]:
    """A sentence for the module, if it is too long, and for each function that is."""
    lines = len(source.splitlines())
    if lines > MAX_MODULE_LINES:
        yield f"the module has {lines} lines"
    for name, length in contents(source).functions:
        if length > MAX_FUNCTION_LINES:
            yield f"{name} has {length} lines"


def is_listed(module: str) -> bool:
    return any(f"{module}.".startswith(f"{each}.") for each in PURITY["source_modules"])


def test_modules_and_functions_are_short() -> None:
    found = {name: [*too_long(source)] for name, source in modules(PACKAGE, "hack").items()}
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_pure_modules_call_nothing_impure() -> None:
    listed = {name: text for name, text in modules(PACKAGE).items() if is_listed(name)}
    found = {name: contents(text).impure_calls for name, text in listed.items()}
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_every_module_that_could_be_pure_is_listed_so() -> None:
    graph = grimp.build_graph(PACKAGE, include_external_packages=True, cache_dir=None)
    libraries = graph.modules & set(PURITY["forbidden_modules"])
    impure = set[str]().union(*map(graph.find_downstream_modules, libraries))
    could_be = {
        name
        for name, source in modules(PACKAGE).items()
        if source.strip() and not graph.find_children(name)
        if name not in impure and not is_listed(name) and not contents(source).impure_calls
    }
    assert could_be == set()


def test_a_name_means_one_class() -> None:
    found = Counter(
        name
        for source in modules(PACKAGE).values()
        for name in contents(source).classes
        if not name.startswith("_")
    )
    assert {name for name, times in found.items() if times > 1} == set()


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES, ["f has 61 lines"]),
        ("x = 1\n" * (MAX_MODULE_LINES + 1), ["the module has 601 lines"]),
        ("def f():\n" + "    x = 1\n" * 59 + "y = 1\n" * 540, []),
    ],
)
def test_what_is_too_long_is_found(source: str, problems: list[str]) -> None:
    assert list(too_long(source)) == problems


def test_no_test_file_imports_another() -> None:
    """What several need is a module of its own, as no change of one test breaks another then."""
    imports = re.compile(r"^(?:from|import) tests\.(?:\w+\.)*test_", re.MULTILINE)
    assert [name for name, source in modules("tests").items() if imports.search(source)] == []
