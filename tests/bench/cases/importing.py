"""`kwok-operator import` of a cluster that a process of its own makes up, at 10 requests a second.

No control plane takes part. `beyond pacing` is the time that remains when each request has had its
tenth of a second; it contains what the made-up API server takes for its answers.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.bench.actors import ROOT, end
from tests.bench.context import Context
from tests.bench.procfs import Usage, usage

IMPORT: Final = "import"
PER_SECOND: Final = 10


def run(context: Context) -> None:
    options = context.options
    with (
        tempfile.TemporaryDirectory() as folder,
        _cluster(options.import_nodes, options.import_pods) as url,
    ):
        seconds, used = _imported(context, url, Path(folder))
        with urllib.request.urlopen(f"{url}/requests") as answer:
            requests = json.load(answer)["requests"]
        written = json.loads((Path(folder) / "out" / "ledger.json").read_text())["written"]
    beyond = seconds - requests / PER_SECOND

    def add(figure: str, value: float, unit: str) -> None:
        context.add(IMPORT, figure, value, work="import", n=options.import_pods, unit=unit)

    add("seconds", seconds, "s")
    add("requests", requests, "")
    add("beyond pacing", beyond, "s")
    add("CPU", used.cpu, "s")
    add("peak memory", used.peak, "MB")
    add("groups written", written.get("KwokNodeGroup", 0), "")
    add("objects written", sum(written.values()), "")


def _imported(context: Context, url: str, folder: Path) -> tuple[float, Usage]:
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
    command = ["-m", "kwok_operator", "import", "--kubeconfig", str(kubeconfig)]
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *command, "--output", folder / "out"], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    used = usage(process.pid)
    while process.poll() is None:
        try:
            used = usage(process.pid)
        except (OSError, KeyError):  # it has just ended
            break
        time.sleep(0.1)
    if process.wait():
        context.note(f"failed: import ended with {process.returncode}")
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
