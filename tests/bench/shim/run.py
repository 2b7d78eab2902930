"""What a unary call costs with this project's gRPC server, next to Go's, in the same run.

    python -m tests.bench.shim.run [--calls N] [--rounds N] [--servers go,ours,...] [--json FILE]

One Go client makes calls one after the other over one connection, each with a deadline of 5 s, as
cluster-autoscaler does. The request is as long as one of NodeGroupForNode; the answer is a short
one from a dict of bytes, or UNIMPLEMENTED, as that of NodeGroupGetOptions mostly is. Each server
has a process of its own; they are measured in turns, and the figure is the median over the rounds,
next to that of the best round: on a machine with few cores, what wakes whom makes calls twice as
fast or slow for seconds, whatever the server. Servers: go, ours (on uvloop), asyncio (ours without
uvloop), grpcio, and the shim with so many nodes.

The Go programs are built from Go modules into the cache outside the checkout.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Final

from kwok_operator.controlplane.golang import find_go
from kwok_operator.controlplane.settings import Settings
from kwok_operator.reporter import Reporter

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
GO: Final = (1, 26, 0)
REQUEST, REPLY = 300, 40
SERVERS: Final = ("go", "ours", "asyncio", "grpcio", "shim-10", "shim-1000", "shim-10000")
TRANSPORTS: Final = ("unix", "tcp")
CALLS: Final[dict[str, list[str]]] = {"answer": [], "refusal": ["-unimplemented"]}

Figures = dict[str, float]


def build(settings: Settings) -> Path:
    """Where `client` and `server` are. Go itself knows what is to be compiled anew."""
    go = find_go(minimum=GO, settings=settings, reporter=Reporter(sys.stderr))
    target = settings.cache / "tools" / "bench-shim"
    target.mkdir(parents=True, exist_ok=True)
    environ = {**settings.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly"]
    command = [str(go), "build", *flags, "-o", f"{target}/", "./client", "./server"]
    subprocess.run(command, cwd=HERE, env=environ, check=True)
    return target


@contextmanager
def serving(name: str, *, transport: str, programs: Path) -> Iterator[str]:
    """A server of its own process; gives the address for the client."""
    with tempfile.TemporaryDirectory(prefix="bench-shim-") as directory:
        unix = f"unix:{directory}/s.sock"
        listen = unix if transport == "unix" else "127.0.0.1:0"
        sizes = ["-request", str(REQUEST), "-reply", str(REPLY)]
        if name == "go":
            command = [str(programs / "server"), "-listen", listen, *sizes]
        else:
            module = "tests.bench.shim.serve"
            command = [sys.executable, "-m", module, "-server", name, "-listen", listen, *sizes]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().removeprefix("listening ").strip()
                if not address:
                    raise SystemExit(f"the server {name} does not start")
                yield unix if transport == "unix" else address
            finally:
                process.terminate()


def measure(address: str, *, calls: int, flags: list[str], programs: Path) -> Figures:
    command = [str(programs / "client"), "-target", address, "-calls", str(calls), *flags]
    command += ["-request", str(REQUEST), "-reply", str(REPLY)]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    figures: Figures = json.loads(out.stdout)
    return figures


def report(transport: str, call: str, figures: dict[str, list[Figures]]) -> None:
    def median(name: str, key: str) -> float:
        return statistics.median(each[key] for each in figures[name])

    for name, rounds in figures.items():
        line = f"{transport:<5} {call:<8} {name:<8} p50 {median(name, 'p50_us'):7.1f} us"
        line += f"   p99 {median(name, 'p99_us'):7.1f} us"
        line += f"   {median(name, 'calls_per_second'):7.0f} calls/s"
        if "go" in figures and name != "go":
            ratio = median(name, "p50_us") / median("go", "p50_us")
            line += f"   p50 {ratio:.2f} x Go"
        line += f"   best p50 {min(each['p50_us'] for each in rounds):5.1f} us"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--servers", default="go,ours,shim-10,shim-1000,shim-10000", help=", ".join(SERVERS)
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    servers = arguments.servers.split(",")
    if unknown := set(servers) - set(SERVERS):
        parser.error(f"--servers: no {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")
    programs = build(Settings.from_environ(os.environ))
    load = os.getloadavg()[0]
    found_by_all: list[dict[str, object]] = []
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load before {load:.1f}")
    for transport in TRANSPORTS:
        figures: dict[str, dict[str, list[Figures]]] = {call: {} for call in CALLS}
        with ExitStack() as stack:
            addresses = {
                name: stack.enter_context(serving(name, transport=transport, programs=programs))
                for name in servers
            }
            for (call, flags), name in product(arguments.rounds * [*CALLS.items()], servers):
                address = addresses[name]
                found = measure(address, calls=arguments.calls, flags=flags, programs=programs)
                figures[call].setdefault(name, []).append(found)
        for call, of_call in figures.items():
            report(transport, call, of_call)
            found_by_all += [
                {"transport": transport, "call": call, "server": name, "rounds": rounds}
                for name, rounds in of_call.items()
            ]
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found_by_all, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
