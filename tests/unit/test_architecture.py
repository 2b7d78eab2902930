"""Which part of the package may know which, and how large a part may be.

- parts know each other in one direction only:
  cli -> controller | shim | comparing -> rehearsal -> importing -> kube -> core -> models
- the controller's rooms, too: runtime -> reconcile -> sources | cloud -> writers -> observed
- every third-party library is known to the modules that are there for it, and to no others
- core is pure: no clock, no randomness, no environment, no input and output
- modules have at most 600 lines, functions 60
- no two public classes have one name

Imports are read from the source, those inside functions and TYPE_CHECKING too, so nothing needs to
be installed or executed. Each rule is shown to bite on a module that breaks it.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.rows import each_row

PACKAGE = "kwok_operator"
ROOT = Path(__file__).resolve().parents[2]

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60

_BELOW = frozenset(
    {"constants", "errors", "settings", "models", "core", "kube", "observability", "userfiles"}
)
_ROOMS = frozenset({"controller.observed", "controller.writers"})

KNOWS: dict[str, frozenset[str]] = {
    "constants": frozenset(),
    "signals": frozenset(),
    "userfiles": frozenset(),
    "errors": frozenset({"constants"}),
    "settings": frozenset({"constants", "errors"}),
    "observability": frozenset({"constants", "errors"}),
    "models": frozenset({"constants"}),
    "core": frozenset({"models", "constants", "errors", "settings"}),
    "kube": _BELOW,
    "controller.observed": _BELOW,
    "controller.writers": _BELOW | {"controller.observed"},
    "controller.sources": _BELOW | _ROOMS,
    "controller.cloud": _BELOW | _ROOMS,
    "controller.podprofiles": _BELOW | _ROOMS,
    "controller.companions": _BELOW | _ROOMS,
    "controller.clusterapi": _BELOW | _ROOMS | {"controller.sources"},
    "controller.reconcile": _BELOW
    | _ROOMS
    | {"controller.sources", "controller.cloud", "controller.companions"},
    "controller.runtime": _BELOW
    | _ROOMS
    | {
        "controller.sources",
        "controller.cloud",
        "controller.clusterapi",
        "controller.companions",
        "controller.podprofiles",
        "controller.reconcile",
    },
    "shim": _BELOW,
    "importing": _BELOW | {"signals"},
    "controlplane": frozenset({"errors"}),
    "rehearsal": _BELOW | {"controlplane", "importing", "signals"},
    "cli": _BELOW
    | {"controller.runtime", "controller.clusterapi", "shim", "importing"}
    | {"controlplane", "rehearsal", "comparing"},
    "comparing": _BELOW | {"controlplane", "rehearsal"},
    "testkit": _BELOW | {"controlplane", "rehearsal", "signals"},
    "__main__": frozenset({"cli"}),
}

CONFINED: dict[str, tuple[str, ...]] = {
    "kopf": (f"{PACKAGE}.controller.runtime.handlers",),
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
    if part == "core":
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
    """The second name, as kube of kwok_operator.kube.client; of the controller, its room, too."""
    names = module.split(".")[1:]
    return ".".join(names[:2]) if names[:1] == ["controller"] else "".join(names[:1])


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
    if part == "core" and top in IMPURE_MODULES:
        return f"imports {name}: core is pure"
    return None


def _may_know(part: str, known: str) -> bool:
    # A name such as __version__ is the package's own, and everybody's.
    return known == "__version__" or known in KNOWS.get(part, frozenset())


def _impure(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield node.lineno, f"calls {name}: core is pure"
            case ast.Call(func=ast.Attribute(attr=name, value=owner)) if (
                name in CLOCK_METHODS and ast.unparse(owner).split(".")[-1] in ("datetime", "date")
            ):
                yield node.lineno, f"calls {ast.unparse(owner)}.{name}: core reads no clock"


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
    assert parts == {*KNOWS, "", "controller"}


def test_a_name_means_one_class() -> None:
    found = Counter(
        node.name
        for path in _modules(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, times in found.items() if times > 1} == set()


@each_row(
    "module source problem",
    [
        ("models.a", "from kwok_operator.errors import X", "models may not know errors"),
        ("models.a", "import kwok_operator.core.plan", "models may not know core"),
        ("core.a", "from kwok_operator.kube.client import X", "core may not know kube"),
        ("core.a", "from kwok_operator import observability", "core may not know observ"),
        ("core.a", "from ..kube import client", "core may not know kube"),
        ("core.a", "def f():\n    from kwok_operator import kube", "core may not know kube"),
        (
            "core.a",
            "if TYPE_CHECKING:\n    from kwok_operator.kube.x import Y",
            "core may not know kube",
        ),
        ("kube.a", "import kwok_operator.controller.runtime.run", "kube may not know controller"),
        (
            "controller.cloud.a",
            "from kwok_operator.controller.reconcile.x import y",
            "controller.cloud may not know controller.reconcile",
        ),
        (
            "controller.observed.a",
            "from kwok_operator.controller.writers import y",
            "controller.observed may not know controller.writers",
        ),
        ("controller.a.b", "from kwok_operator.shim import x", "controller.a may not know shim"),
        ("shim.a", "from kwok_operator.controller.x import y", "shim may not know controller"),
        ("controller.a.b", "from kwok_operator import cli", "controller.a may not know cli"),
        ("observability.a", "from kwok_operator.kube import x", "observability may not know kube"),
        ("constants", "from kwok_operator import errors", "constants may not know errors"),
        ("kube.a", "from tests.unit import x", "not part of the package"),
        ("controller.runtime.run", "import kopf", "may know kopf"),
        ("kube.client", "from kubernetes_asyncio import config", "may know kubernetes_asyncio"),
        ("controller.a", "import aiohttp.web", "may know aiohttp"),
        ("healthy", "import aiohttp", "may know aiohttp"),
        ("cli.main", "import grpc", "may know grpc"),
        ("kube.a", "from prometheus_client import Counter", "may know prometheus_client"),
        ("core.a", "import asyncio", "core is pure"),
        ("core.a", "import time", "core is pure"),
        ("core.a", "from random import random", "core is pure"),
        ("core.a", "import os.path", "core is pure"),
        ("core.a", "from datetime import datetime\nx = datetime.now()", "core reads no clock"),
        ("core.a", "import datetime\nx = datetime.datetime.now(tz)", "core reads no clock"),
        ("core.a", "def f():\n    return open('x')", "core is pure"),
    ],
)
def test_a_wrong_module_is_found(module: str, source: str, problem: str) -> None:
    (found,) = violations(module=f"{PACKAGE}.{module}", source=source)
    assert problem in found


@each_row(
    "module source",
    [
        ("models.a", "from kwok_operator.constants import KIND\nfrom .b import c"),
        ("core.a", "from kwok_operator import constants, errors\nfrom ..models import status"),
        ("core.a", "from datetime import datetime\ndef f(now: datetime): return now"),
        ("core.a", "import hashlib, json, collections.abc"),
        ("kube.config", "import kubernetes_asyncio.config"),
        ("kube.client", "import aiohttp\nfrom kwok_operator.observability import metrics"),
        ("controller.runtime.handlers", "import kopf\nfrom kwok_operator import __version__"),
        (
            "cli.main",
            "from kwok_operator.controller.runtime import run\nimport kwok_operator.shim.run",
        ),
        ("observability.a", "import prometheus_client\nfrom kwok_operator import constants"),
    ],
)
def test_a_right_module_passes(module: str, source: str) -> None:
    assert violations(module=f"{PACKAGE}.{module}", source=source) == []


def test_a_relative_import_of_a_package_is_resolved() -> None:
    # One dot means the package itself in its __init__, and the package around it in a module.
    module, source = f"{PACKAGE}.core", "from ..kube import client"
    (found,) = violations(module=module, source=source, is_package=True)
    assert "core may not know kube" in found


def test_a_long_module_and_a_long_function_are_found() -> None:
    function = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
    (found,) = too_long(module="m", source=function)
    assert f"f has {MAX_FUNCTION_LINES + 1} lines" in found
    (found,) = too_long(module="m", source="x = 1\n" * (MAX_MODULE_LINES + 1))
    assert f"m has {MAX_MODULE_LINES + 1} lines" in found
    assert too_long(module="m", source="def f():\n" + "    x = 1\n" * 59 + "y = 1\n" * 540) == []
