"""Which part of the package may know which, and how large a part may be.

- each feature is a folder: what is pure and what does input and output (IO) side by side
- parts know each other as KNOWS says: formats and api below, then kube, the features, the programs
  (operator, shim), rehearsals, comparisons, and the command line
- every third-party library is known to the modules that are there for it, and to no others
- all but IO and the programs is pure: no clock, no randomness, no environment, no input and output
- modules have at most 600 lines, functions 60
- no two public classes have one name

Imports are read from the source, those inside functions and TYPE_CHECKING too, so nothing needs to
be installed or executed. Each rule is shown to bite on a module that breaks it.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "kwok_operator"
ROOT = Path(__file__).resolve().parents[2]

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60

_BELOW = frozenset(
    {"constants", "errors", "settings", "formats", "api", "kube", "observability", "userfiles"}
)

KNOWS: dict[str, frozenset[str]] = {
    "constants": frozenset(),
    "signals": frozenset(),
    "userfiles": frozenset(),
    "errors": frozenset({"constants"}),
    "settings": frozenset({"constants", "errors"}),
    "observability": frozenset({"constants", "errors"}),
    "formats": frozenset({"constants", "errors"}),
    "api": frozenset({"constants"}),
    "kube": _BELOW | {"nodegroups"},
    "nodegroups": _BELOW | {"sources", "cloud", "companions"},
    "sources": _BELOW | {"nodegroups", "companions"},
    "cloud": _BELOW | {"nodegroups", "sources", "companions"},
    "companions": _BELOW | {"nodegroups", "sources", "cloud"},
    "podprofiles": _BELOW | {"nodegroups", "sources", "cloud", "schema", "importing"},
    "clusterapi": _BELOW | {"nodegroups", "sources", "cloud", "companions", "schema"},
    "schema": _BELOW | {"nodegroups", "sources", "cloud", "podprofiles", "clusterapi"},
    "operator": _BELOW
    | {"nodegroups", "sources", "cloud", "companions", "podprofiles", "clusterapi"},
    "shim": _BELOW | {"nodegroups", "cloud", "clusterapi"},
    "importing": _BELOW | {"nodegroups", "sources", "clusterapi", "signals"},
    "controlplane": frozenset({"errors"}),
    "rehearsal": _BELOW
    | {"nodegroups", "cloud", "podprofiles", "schema", "importing", "controlplane", "signals"},
    "comparison": _BELOW | {"schema", "rehearsal", "controlplane"},
    "testkit": _BELOW | {"nodegroups", "rehearsal", "controlplane", "signals"},
    "cli": _BELOW
    | {"nodegroups", "podprofiles", "clusterapi", "schema", "operator", "shim", "importing"}
    | {"controlplane", "rehearsal", "comparison"},
    "__main__": frozenset({"cli"}),
}

IO: dict[str, frozenset[str]] = {
    "schema": frozenset(
        """
        crd
        """.split()
    ),
    "nodegroups": frozenset(
        """
        actions announcements budget client groupstore intake nodecache nodewriter observation
        parts podwriter queue reconciler reporting statuswriter strays unmarked
        """.split()
    ),
    "sources": frozenset(
        """
        configmaps derivedgroups groupwriter livenodes provider references templates
        """.split()
    ),
    "cloud": frozenset(
        """
        clouds decision hold kwok pools
        """.split()
    ),
    "companions": frozenset(
        """
        copying keeper shelf state survey writer
        """.split()
    ),
    "podprofiles": frozenset(
        """
        kwokobjects namespaces profiles
        """.split()
    ),
    "clusterapi": frozenset(
        """
        consent emulate machinewriter management mirror playedobjects settings
        """.split()
    ),
    "importing": frozenset(
        """
        anonymizing autoscalers cluster folder importer login progress settings traces.files
        traces.record traces.replay traces.report traces.settings yamlout
        """.split()
    ),
    "comparison": frozenset(
        """
        folders load loading running
        """.split()
    ),
    "rehearsal": frozenset(
        """
        arriving beginning borrowed calls clearing course following installing keeper kubectl
        loading logs outputs programs progress recorder refusals runner settings stage steps
        surroundings
        """.split()
    ),
}
"""Of the folders that have both, the modules with input and output."""

PURE = frozenset({"formats", "api"})

CONFINED: dict[str, tuple[str, ...]] = {
    "kopf": (f"{PACKAGE}.operator.handlers",),
    "kubernetes_asyncio": (f"{PACKAGE}.kube.config", f"{PACKAGE}.importing.login"),
    "aiohttp": (
        f"{PACKAGE}.kube",
        f"{PACKAGE}.observability.health",
        f"{PACKAGE}.importing.cluster",
    ),
    "rich": (f"{PACKAGE}.rehearsal.progress",),
    "msgpack": (f"{PACKAGE}.importing.traces.files",),
    "grpc": (f"{PACKAGE}.shim",),
    "google": (f"{PACKAGE}.shim",),
    "hpack": (f"{PACKAGE}.shim.http2",),
    "prometheus_client": (f"{PACKAGE}.observability", f"{PACKAGE}.shim.metrics"),
    "pytest": (f"{PACKAGE}.testkit.plugin",),
    "uvloop": (f"{PACKAGE}.cli.main",),
}

IMPURE_MODULES = frozenset(
    """
    aiohttp asyncio concurrent fcntl fileinput ftplib glob grpc http httpx io kopf kubernetes
    kubernetes_asyncio logging mmap multiprocessing os pathlib pickle prometheus_client queue
    random requests sched secrets select selectors shutil signal socket socketserver sqlite3 ssl
    subprocess sys tempfile threading time urllib urllib3 uuid uvloop
    """.split()
)
IMPURE_CALLS = frozenset({"open", "print", "input", "breakpoint", "exec", "eval", "__import__"})
CLOCK_METHODS = frozenset({"now", "utcnow", "today"})


def violations(*, module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module of the package does that it may not, one sentence each."""
    tree = ast.parse(source)
    part = _part_of(module)
    found = []
    for line, name in _imports(tree, module=module, is_package=is_package):
        problem = _forbidden_import(name, module=module, part=part)
        if problem:
            found.append(f"{module}:{line} {problem}")
    if _is_pure(module, part):
        found += [f"{module}:{line} {problem}" for line, problem in _impure(tree)]
    return found


def too_long(*, module: str, source: str) -> list[str]:
    found = []
    lines = len(source.splitlines())
    if lines > MAX_MODULE_LINES:
        found.append(f"{module} has {lines} lines, at most {MAX_MODULE_LINES}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(
                    f"{module}:{node.lineno} {node.name} has {length} lines,"
                    f" at most {MAX_FUNCTION_LINES}"
                )
    return found


def _part_of(module: str) -> str:
    """The second name, as kube of kwok_operator.kube.client."""
    return "".join(module.split(".")[1:2])


def _is_pure(module: str, part: str) -> bool:
    within = module.partition(f"{part}.")[2]
    return part in PURE or (part in IO and within not in IO[part])


def _within(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def _imports(tree: ast.AST, *, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Absolute names; `from a import b` gives a.b, as b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")
                keep = len(above) - node.level + is_package
                base = ".".join([*above[:keep], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _forbidden_import(name: str, *, module: str, part: str) -> str | None:
    top = name.partition(".")[0]
    if top in ("tests", "hack"):
        return f"imports {name}, which is not part of the package"
    if top == PACKAGE:
        known = _part_of(name)
        if known in ("", part) or not part or _may_know(part, known):
            return None
        return f"imports {name}: {part} may not know {known}"
    if top in CONFINED and not any(_within(module, place) for place in CONFINED[top]):
        return f"imports {name}: only {' and '.join(CONFINED[top])} may know {top}"
    if top in IMPURE_MODULES and _is_pure(module, part) and not _within(name, "urllib.parse"):
        return f"imports {name}: {module} is pure"
    return None


def _may_know(part: str, known: str) -> bool:
    # A name such as __version__ is the package's own, and everybody's.
    return known == "__version__" or known in KNOWS.get(part, frozenset())


def _impure(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield node.lineno, f"calls {name}: the module is pure"
            case ast.Call(func=ast.Attribute(attr=name, value=owner)) if (
                name in CLOCK_METHODS and ast.unparse(owner).split(".")[-1] in ("datetime", "date")
            ):
                yield node.lineno, f"calls {ast.unparse(owner)}.{name}: the module reads no clock"


def _modules(*roots: str) -> list[Path]:
    return sorted(path for root in roots for path in (ROOT / root).rglob("*.py"))


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_follow_the_arrows() -> None:
    for path in _modules(PACKAGE):
        source = path.read_text(encoding="utf-8")
        is_package = path.name == "__init__.py"
        assert violations(module=_dotted(path), source=source, is_package=is_package) == []


def test_modules_and_functions_are_short() -> None:
    for path in _modules(PACKAGE, "hack"):
        assert too_long(module=_dotted(path), source=path.read_text(encoding="utf-8")) == []


def test_every_part_is_looked_at() -> None:
    parts = {_part_of(_dotted(path)) for path in _modules(PACKAGE)}
    assert parts == {*KNOWS, ""}


def test_a_name_means_one_class() -> None:
    found = Counter(
        node.name
        for path in _modules(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, times in found.items() if times > 1} == set()


@pytest.mark.parametrize(
    ("module", "source", "problem"),
    [
        ("api.a", "from kwok_operator.errors import X", "api may not know errors"),
        ("formats.a", "import kwok_operator.nodegroups.plan", "formats may not know nodegroups"),
        ("formats.a", "from kwok_operator.kube.client import X", "formats may not know kube"),
        ("formats.a", "from kwok_operator import observability", "formats may not know observ"),
        ("formats.a", "from ..kube import client", "formats may not know kube"),
        ("formats.a", "def f():\n    from kwok_operator import kube", "formats may not know kube"),
        (
            "formats.a",
            "if TYPE_CHECKING:\n    from kwok_operator.kube.x import Y",
            "formats may not know kube",
        ),
        ("kube.a", "import kwok_operator.operator.run", "kube may not know operator"),
        ("cloud.a", "from kwok_operator.clusterapi.x import y", "cloud may not know clusterapi"),
        ("operator.b", "from kwok_operator.shim import x", "operator may not know shim"),
        ("shim.a", "from kwok_operator.operator.x import y", "shim may not know operator"),
        ("operator.b", "from kwok_operator import cli", "operator may not know cli"),
        ("observability.a", "from kwok_operator.kube import x", "observability may not know kube"),
        ("constants", "from kwok_operator import errors", "constants may not know errors"),
        ("kube.a", "from tests.unit import x", "not part of the package"),
        ("operator.run", "import kopf", "may know kopf"),
        ("kube.client", "from kubernetes_asyncio import config", "may know kubernetes_asyncio"),
        ("operator.a", "import aiohttp.web", "may know aiohttp"),
        ("healthy", "import aiohttp", "may know aiohttp"),
        ("cli.main", "import grpc", "may know grpc"),
        ("kube.a", "from prometheus_client import Counter", "may know prometheus_client"),
        ("cloud.draws", "import asyncio", "cloud.draws is pure"),
        ("rehearsal.judge.figures", "import time", "rehearsal.judge.figures is pure"),
        ("formats.a", "from random import random", "formats.a is pure"),
        ("nodegroups.plan", "import os.path", "nodegroups.plan is pure"),
        ("schema.a", "from datetime import datetime\nx = datetime.now()", "reads no clock"),
        ("formats.a", "import datetime\nx = datetime.datetime.now(tz)", "reads no clock"),
        ("formats.a", "def f():\n    return open('x')", "is pure"),
    ],
)
def test_a_wrong_module_is_found(module: str, source: str, problem: str) -> None:
    (found,) = violations(module=f"{PACKAGE}.{module}", source=source)
    assert problem in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("api.a", "from kwok_operator.constants import KIND\nfrom .b import c"),
        ("cloud.draws", "from kwok_operator import constants, errors\nfrom ..api import base"),
        ("formats.a", "from datetime import datetime\ndef f(now: datetime): return now"),
        ("formats.a", "import hashlib, json, collections.abc"),
        ("nodegroups.reconciler", "import asyncio"),
        ("kube.config", "import kubernetes_asyncio.config"),
        ("kube.client", "import aiohttp\nfrom kwok_operator.observability import metrics"),
        ("operator.handlers", "import kopf\nfrom kwok_operator import __version__"),
        ("cli.main", "from kwok_operator.operator import run\nimport kwok_operator.shim.run"),
        ("observability.a", "import prometheus_client\nfrom kwok_operator import constants"),
    ],
)
def test_a_right_module_passes(module: str, source: str) -> None:
    assert violations(module=f"{PACKAGE}.{module}", source=source) == []


def test_a_relative_import_of_a_package_is_resolved() -> None:
    # One dot means the package itself in its __init__, and the package around it in a module.
    module, source = f"{PACKAGE}.formats", "from ..kube import client"
    (found,) = violations(module=module, source=source, is_package=True)
    assert "formats may not know kube" in found


def test_a_long_module_and_a_long_function_are_found() -> None:
    function = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
    (found,) = too_long(module="m", source=function)
    assert f"f has {MAX_FUNCTION_LINES + 1} lines" in found
    (found,) = too_long(module="m", source="x = 1\n" * (MAX_MODULE_LINES + 1))
    assert f"m has {MAX_MODULE_LINES + 1} lines" in found
    assert too_long(module="m", source="def f():\n" + "    x = 1\n" * 59 + "y = 1\n" * 540) == []
