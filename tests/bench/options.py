"""The command line of the bench, as a value. Pure."""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

RIVALS: Final = ("operator", "ceiling", "kwokctl", "in-tree")
LIMITS: Final = {"default": ("default",), "raised": ("raised",), "both": ("default", "raised")}
"""Of Kubernetes' own clients: what they are without a flag, or as kwokctl.py raises them."""

_EPILOG = """\
Each case has a control plane of its own, and can be run alone. What a case has found is in the
results folder as soon as the case is over; a folder that has results already gets those of the
cases that are run, and keeps the others.

  python -m tests.bench --quick                       all cases, small: does it work here?
  python -m tests.bench usable --sizes 1000 --skip kwokctl
  python -m tests.bench memory --memory-sizes 1000,10000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the bench was asked for."""

    cases: tuple[str, ...]
    sizes: tuple[int, ...] = (1_000, 5_000)
    rounds: int = 3
    kwokctl_rounds: int = 1
    skip: tuple[str, ...] = ()
    concurrency: tuple[int, ...] = (8, 16, 32, 64)
    burst: int = 300
    singles: int = 100
    base: int = 100
    memory_sizes: tuple[int, ...] = (1_000, 3_000, 10_000, 50_000)
    live_limit: int = 10_000
    idle: float = 120.0
    pods: int = 1_000
    pod_nodes: int = 1_000
    life_pods: int = 10_000
    life_rate: int = 40
    import_nodes: int = 5_000
    import_pods: int = 100_000
    limits: tuple[str, ...] = LIMITS["default"]
    cluster_autoscaler: str = ""
    operator_flags: tuple[str, ...] = ()
    results: str = ""

    def rivals(self, *names: str) -> list[str]:
        """Those of the names that are not to be skipped."""
        return [name for name in names if name not in self.skip]


_QUICK: Final[Mapping[str, Any]] = {
    "sizes": (50, 100),
    "rounds": 1,
    "kwokctl_rounds": 1,
    "burst": 40,
    "concurrency": (8, 32),
    "singles": 8,
    "base": 10,
    "memory_sizes": (50, 100, 200),
    "live_limit": 100,
    "idle": 10.0,
    "pods": 200,
    "pod_nodes": 20,
    "life_pods": 200,
    "import_nodes": 50,
    "import_pods": 1_000,
}


def parse(argv: Sequence[str] | None, *, cases: Mapping[str, str]) -> Options:
    """Read the command line; `cases` are names and what they do. Exits where it makes no sense."""
    parser = _parser(cases)
    given = {
        key: value for key, value in vars(parser.parse_args(argv)).items() if value is not None
    }
    quick = given.pop("quick")
    wanted = tuple(dict.fromkeys(given.pop("cases"))) or tuple(cases)
    if unknown := [name for name in wanted if name not in cases]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(cases)}")
    if "limits" in given:
        given["limits"] = LIMITS[given["limits"]]
    options = Options(cases=wanted, **{**(_QUICK if quick else {}), **given})
    if options.pods % options.pod_nodes:
        parser.error(f"--pods {options.pods}: not a multiple of --pod-nodes {options.pod_nodes}")
    return options


def _parser(cases: Mapping[str, str]) -> argparse.ArgumentParser:
    told = "\n".join(f"  {name:<9} {text}" for name, text in cases.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=f"The operator's cost, beside peers and the bare ceiling.\n\ncases:\n{told}",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = Options(cases=())
    parser.add_argument("cases", metavar="CASE", nargs="*", help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round, no waiting")
    parser.add_argument("--results", metavar="DIR", help="default: bench-results/TIME")

    def add(flag: str, kind: Any, text: str) -> None:
        value = getattr(default, flag.replace("-", "_"))
        told = ",".join(map(str, value)) if isinstance(value, tuple) else value
        parser.add_argument(f"--{flag}", type=kind, metavar="N", help=f"{text} (default {told})")

    add("sizes", _counts, "numbers of nodes, of most cases")
    add("rounds", _count, "how often each rival has its turn")
    add("kwokctl-rounds", _count, "in how many of them kwokctl takes part")
    add("concurrency", _counts, "what is tried for the load generator")
    add("burst", _count, "nodes of one such try")
    add("singles", _count, "case one: how many single nodes")
    add("base", _count, "case one: nodes that are there already")
    add("memory-sizes", _counts, "numbers of nodes in the cases memory and shim")
    add("live-limit", _count, "there, with more nodes than this only etcd and the API server run")
    add("idle", _seconds, "there, seconds to watch an idle process")
    add("pods", _count, "cases pods and autoscaler: pods")
    add("pod-nodes", _count, "there, nodes; each takes as many pods as there are for it")
    add("life-pods", _count, "case lives: pods of each run")
    add("life-rate", _count, "there, pods made a second")
    add("import-nodes", _count, "case import: nodes")
    add("import-pods", _count, "there, pods")
    parser.add_argument(
        "--limits",
        choices=LIMITS,
        help="of Kubernetes' own clients, in requests a second: its defaults, as most clusters have"
        " them, or raised, as `make cluster-up` has them (default default)",
    )
    parser.add_argument(
        "--cluster-autoscaler", metavar="PATH", help="case autoscaler: the program to run"
    )
    parser.add_argument(
        "--skip", action="append", choices=RIVALS[1:], help="leave out a rival; may be repeated"
    )
    parser.add_argument(
        "--operator-flags", type=_words, metavar="FLAGS", help="more flags for `kwok-operator run`"
    )
    return parser


def _count(text: str) -> int:
    number = int(text.replace(",", "").replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({_count(part) for part in text.split(",") if part}))


def _seconds(text: str) -> float:
    seconds = float(text)
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds")
    return seconds


def _words(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))
