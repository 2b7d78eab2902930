"""A real Prometheus for tests: built once, started with the targets that a test names.

    with Prometheus(tools, directory, targets={"kwok-operator": "127.0.0.1:8080"}) as prometheus:
        prometheus.query("up")

It scrapes each second, so that a test does not wait for half a minute to see a rate. Also used by
hack/dashboard.py, which draws what a Grafana would show.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.tools import PROMETHEUS
from kwok_operator.controlplane import Settings, Tools, find_set
from kwok_operator.reporter import Reporter
from tests.e2e.kubectl import PATIENCE, eventually
from tests.e2e.ports import free_address

MONITORING = Path(__file__).parents[2] / "deploy" / "components" / "monitoring"
NAMESPACE = "kwok-operator"


@pytest.fixture(scope="package")
def prometheus_tools() -> Tools:
    """prometheus and promtool; the first time they are built, which takes some minutes."""
    settings = Settings.from_environ(os.environ)
    return find_set(PROMETHEUS, settings=settings, reporter=Reporter(sys.stderr))


def rules() -> dict[str, Any]:
    """What the PrometheusRule says, as Prometheus reads it."""
    spec: dict[str, Any] = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
    return spec


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


@dataclass(frozen=True, slots=True)
class Panel:
    """What a panel of the dashboard shows: the row it is in, and its queries with their legends."""

    row: str
    title: str
    kind: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def panels() -> Iterator[Panel]:
    """The dashboard's panels that have queries, the variables in them filled in."""
    row = ""
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            continue
        queries = tuple(
            (filled_in(target["expr"]), target.get("legendFormat", ""))
            for target in panel["targets"]
        )
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        yield Panel(row, panel["title"], panel["type"], unit, queries)


def filled_in(query: str) -> str:
    """A query as Grafana sends it, with everything selected."""
    for variable, value in {
        "$__rate_interval": "1m",
        "$namespace": NAMESPACE,
        "$group": ".*",
    }.items():
        query = query.replace(variable, value)
    return query


class QueryError(Exception):
    """Prometheus refuses a query."""


class Prometheus:
    """A running one; `url` is where it answers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, query: str) -> list[dict[str, Any]]:
        """The series that a query gives now. Raises QueryError."""
        result: list[dict[str, Any]] = self._ask("query", query=query)["result"]
        return result

    def query_range(self, query: str, *, start: float, end: float, step: float) -> Any:
        """The series of a query over time. Raises QueryError."""
        return self._ask("query_range", query=query, start=start, end=end, step=step)["result"]

    def _ask(self, what: str, **parameters: Any) -> dict[str, Any]:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{what}?{query}", timeout=20) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except urllib.error.HTTPError as error:
            with error:
                raise QueryError(f"{parameters}: {error.read().decode()}") from error


@contextmanager
def running_prometheus(
    tools: Tools, directory: Path, *, targets: Mapping[str, str]
) -> Iterator[Prometheus]:
    """Scrapes `targets` (job: host and port) as our ServiceMonitors tell it to, with our rules."""
    (directory / "rules.yaml").write_text(yaml.safe_dump(rules()))
    config = directory / "prometheus.yaml"
    config.write_text(yaml.safe_dump(_config(targets)))
    address = free_address()
    log = directory / "prometheus.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                str(tools["prometheus"]),
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
    try:
        prometheus = Prometheus(f"http://{address}")
        eventually(
            lambda: _targets(prometheus, process, log),
            until=lambda up: len(up) == len(targets) and all(s["value"][1] == "1" for s in up),
            describe="every target is scraped",
        )
        yield prometheus
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _targets(
    prometheus: Prometheus, process: "subprocess.Popen[bytes]", log: Path
) -> list[dict[str, Any]]:
    if process.poll() is not None:
        raise RuntimeError(f"Prometheus has ended:\n{log.read_text()}")
    try:
        return prometheus.query("up")
    except (OSError, QueryError) as error:  # it says 503 while it starts
        raise LookupError(f"no answer yet: {error}") from error


def _config(targets: Mapping[str, str]) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "5s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [
                    {"targets": [target], "labels": {"namespace": NAMESPACE, "pod": f"{job}-0"}}
                ],
            }
            for job, target in targets.items()
        ],
    }
