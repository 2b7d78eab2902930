"""`kwok-operator import` of a cluster that a process of its own makes up, at 10 requests a second,
and of a file with the same nodes and pods, as cluster-autoscaler's snapshot has them.

No control plane takes part. `beyond pacing` is the time that remains when each request has had its
tenth of a second; it contains what the made-up API server takes for its answers.

The ceiling of a file is a process that only reads it, by `json.load`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.bench.actors import ROOT, end
from tests.bench.bigcluster import BigCluster
from tests.bench.context import Context
from tests.bench.procfs import Usage, usage

IMPORT: Final = "import"
PER_SECOND: Final = 10
_LOAD: Final = "import json, sys; json.load(open(sys.argv[1]))"


def run(context: Context) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _of_a_cluster(context, Path(folder))
        _of_a_file(context, Path(folder))


def _of_a_cluster(context: Context, folder: Path) -> None:
    options = context.options
    with _cluster(options.import_nodes, options.import_pods) as url:
        seconds, used = _imported(context, ["--kubeconfig", _kubeconfig(url, folder)], folder)
        with urllib.request.urlopen(f"{url}/requests") as answer:
            requests = json.load(answer)["requests"]
    beyond = seconds - requests / PER_SECOND
    more = (("requests", requests, ""), ("beyond pacing", beyond, "s"))
    _add(context, "import", seconds, used, folder, more)


def _of_a_file(context: Context, folder: Path) -> None:
    options, file = context.options, folder / "snapshotz.json"
    with file.open("w") as out:
        for piece in BigCluster(options.import_nodes, options.import_pods).snapshot():
            out.write(piece)
    least, bare = _measured(context, ["-c", _LOAD, str(file)])
    seconds, used = _imported(context, ["--from", str(file)], folder)
    more = (
        ("size", file.stat().st_size / 1e6, "MB"),
        ("json.load, seconds", least, "s"),
        ("json.load, CPU", bare.cpu, "s"),
        ("json.load, peak memory", bare.peak, "MB"),
        ("seconds by json.load's", seconds / least, "x"),
        ("peak memory by json.load's", used.peak / bare.peak, "x"),
    )
    _add(context, "import a snapshot", seconds, used, folder, more)


def _add(
    context: Context,
    work: str,
    seconds: float,
    used: Usage,
    folder: Path,
    more: Iterable[tuple[str, float, str]],
) -> None:
    written = json.loads((folder / "out" / "ledger.json").read_text())["written"]
    for figure, value, unit in (
        ("seconds", seconds, "s"),
        *more,
        ("CPU", used.cpu, "s"),
        ("peak memory", used.peak, "MB"),
        ("groups written", written.get("KwokNodeGroup", 0), ""),
        ("objects written", sum(written.values()), ""),
    ):
        context.add(IMPORT, figure, value, work=work, n=context.options.import_pods, unit=unit)


def _kubeconfig(url: str, folder: Path) -> str:
    kubeconfig = folder / "kubeconfig"
    names = {"name": "big", "context": {"cluster": "big", "user": "big"}}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "big",
                "contexts": [names],
                "clusters": [{"name": "big", "cluster": {"server": url}}],
                "users": [{"name": "big", "user": {}}],
            }
        )
    )
    return str(kubeconfig)


def _imported(context: Context, source: Sequence[str], folder: Path) -> tuple[float, Usage]:
    output = str(folder / "out")
    return _measured(context, ["-m", "kwok_operator", "import", *source, "--output", output])


def _measured(context: Context, command: Sequence[str]) -> tuple[float, Usage]:
    """Runs Python, and returns seconds and usage."""
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL)
    used = usage(process.pid)
    while process.poll() is None:
        try:
            used = usage(process.pid)
        except (OSError, KeyError):  # it has just ended
            break
        time.sleep(0.1)
    if process.wait():
        context.note(f"failed: {' '.join(command[:3])} ended with {process.returncode}")
    return time.monotonic() - begun, used


@contextmanager
def _cluster(nodes: int, pods: int) -> Iterator[str]:
    """Its address."""
    sizes = ["--nodes", str(nodes), "--pods", str(pods)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bigcluster", *sizes],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            yield process.stdout.readline().strip()
    finally:
        end(process)
