"""The alerts, with Prometheus' own tools."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from kwok_operator.controlplane import Tools
from kwok_operator.observability.cloudmetrics import INSTANCE_STATES
from tests.e2e.prometheus import prometheus_tools, rules  # noqa: F401
from tests.metrics import operator_metrics, shim_metrics

DOCS = Path(__file__).parents[2] / "docs"
RULES = [rule for group in rules()["groups"] for rule in group["rules"]]

Series = dict[str, str]
"""Values by series, in promtool's notation: one a minute, `a+bxn` n times b more than a."""

_OPERATOR = 'namespace="ns",job="kwok-operator",instance="a"'
_SHIM = 'namespace="ns",job="shim",instance="b",method="NodeGroups"'
_WEB = f'{_OPERATOR},group="web"'


def _nodes(ready: str, *, target: str = "5x90", paused: str = "0x90") -> Series:
    return {
        f"kwok_operator_group_target_nodes{{{_WEB}}}": target,
        f'kwok_operator_group_nodes{{{_WEB},state="ready"}}': ready,
        f'kwok_operator_group_condition{{{_WEB},condition="Paused"}}': paused,
    }


def _instances(**states: str) -> Series:
    """A group's instances in a simulated cloud."""
    every = dict.fromkeys(INSTANCE_STATES, "0x90") | states
    return {
        f'kwok_operator_instances{{{_WEB},state="{state}"}}': values
        for state, values in every.items()
    }


def _leaders(first: str, second: str) -> Series:
    return {
        'kwok_operator_leader{namespace="ns",instance="a"}': first,
        'kwok_operator_leader{namespace="ns",instance="b"}': second,
    }


def _lag(turns: str, quick: str) -> Series:
    name = "kwok_operator_event_loop_lag_seconds"
    return {
        f"{name}_count{{{_OPERATOR}}}": turns,
        f'{name}_bucket{{{_OPERATOR},le="0.5"}}': quick,
    }


def _requests(failed: str, fine: str) -> Series:
    name = "kwok_operator_api_request_duration_seconds_count"
    labels = f'{_OPERATOR},method="GET",resource="nodes"'
    return {
        f'{name}{{{labels},code="503"}}': failed,
        f'{name}{{{labels},code="0"}}': failed,
        f'{name}{{{labels},code="404"}}': fine,
    }


def _calls(code: str, failed: str) -> Series:
    name = "kwok_operator_shim_call_duration_seconds_count"
    return {
        f'{name}{{{_SHIM},code="{code}"}}': failed,
        f'{name}{{{_SHIM},code="OK"}}': "0+60x90",
    }


def _slow(within_a_second: str) -> Series:
    name = "kwok_operator_shim_call_duration_seconds_bucket"
    return {
        f'{name}{{{_SHIM},code="OK",le="1.0"}}': within_a_second,
        f'{name}{{{_SHIM},code="OK",le="5.0"}}': "0+100x90",
        f'{name}{{{_SHIM},code="OK",le="+Inf"}}': "0+100x90",
    }


def _restarts(cause: str) -> Series:
    labels = f'{_OPERATOR},resource="nodes",cause="{cause}"'
    return {f"kwok_operator_watch_restarts_total{{{labels}}}": "0+1x90"}


def _pending(age: str, *, paused: str = "0x90") -> Series:
    return {
        f"kwok_operator_group_pending_age_seconds{{{_WEB}}}": age,
        f'kwok_operator_group_condition{{{_WEB},condition="Paused"}}': paused,
    }


def _one(metric: str, value: str, labels: str = _OPERATOR) -> Series:
    return {f"{metric}{{{labels}}}": value}


def _memory(used: str, limit: str) -> Series:
    return _one("process_resident_memory_bytes", used) | _one(
        "kwok_operator_memory_limit_bytes", limit
    )


def _passes(failed: str) -> Series:
    return _one("kwok_operator_reconcile_errors_total", failed) | _one(
        "kwok_operator_reconcile_duration_seconds_count", "0+60x90"
    )


_PROBLEM = f'{_OPERATOR},reason="NoKey"'
_WATCH = f'{_OPERATOR},resource="nodes"'

BAD: dict[str, list[Series]] = {
    "KwokOperatorDown": [{}, _one("kwok_operator_queue_depth", "0x5 stale")],
    "KwokOperatorNoLeader": [_leaders("0x90", "0x90"), _leaders("1x5 0x90", "0x90")],
    "KwokOperatorTwoLeaders": [_leaders("1x90", "1x90")],
    "KwokOperatorMemoryNearLimit": [_memory("95x90", "100x90")],
    "KwokOperatorEventLoopLag": [_lag("0+1000x90", "0+990x90")],
    "KwokNodeGroupBelowTarget": [
        _nodes("4x90"),
        _nodes("5x5 0x90"),
        _nodes("3x90") | _instances(Ready="3x90", Failed="1x90"),
        _nodes("3x90") | _instances(Ready="3x90", Due="2x90"),
    ],
    "KwokNodeGroupStalled": [
        _one("kwok_operator_group_condition", "1x90", f'{_WEB},condition="Stalled"')
    ],
    "KwokNodesPending": [_pending("0+60x90"), _pending("0+60x90") | _instances(Due="1x90")],
    "KwokNodeLimitReached": [_one("kwok_operator_groups_waiting_for_room", "2x90")],
    "KwokProviderConfigProblem": [_one("kwok_operator_provider_config_problems", "1x90", _PROBLEM)],
    "KwokOperatorReconcileErrors": [_passes("0+30x90")],
    "KwokOperatorApiErrors": [_requests("0+30x90", "0+60x90")],
    "KwokOperatorThrottled": [_one("kwok_operator_node_writes_throttled_total", "0+120x90")],
    "KwokOperatorWatchFails": [_restarts("failed"), _restarts("expired")],
    "KwokOperatorWatchSilent": [_one("kwok_operator_watch_silence_seconds", "0+60x90", _WATCH)],
    "KwokControllerSilent": [_one("kwok_operator_kwok_responding", "0x90")],
    "KwokShimNotSynced": [_one("kwok_operator_shim_synced", "0x90", _SHIM)],
    "KwokShimErrors": [_calls("INTERNAL", "0+6x90"), _calls("UNAVAILABLE", "0+6x90")],
    "KwokShimSlow": [_slow("0+90x90")],
}
FINE: dict[str, list[Series]] = {
    "KwokOperatorDown": [_one("kwok_operator_queue_depth", "0x90")],
    "KwokOperatorNoLeader": [_leaders("1x90", "0x90"), _leaders("1x29 0 0x60", "0x29 0 1x60"), {}],
    "KwokOperatorTwoLeaders": [_leaders("1x90", "0x90"), _leaders("1x60 0x30", "0x60 1x30")],
    "KwokOperatorMemoryNearLimit": [
        _memory("50x90", "100x90"),
        _memory("95x90", " ".join(["Inf"] * 90)),
    ],
    "KwokOperatorEventLoopLag": [_lag("0+1000x90", "0+1000x90"), _lag("0+1000x90", "0+999x90")],
    "KwokNodeGroupBelowTarget": [
        _nodes("5x90"),
        _nodes("6x90"),
        _nodes("1x90", paused="1x90"),
        _nodes("5x50 0x10 5x30"),
        _nodes("2x90") | _instances(Ready="2x90", Failed="1x90", NotReady="2x90"),
    ],
    "KwokNodeGroupStalled": [
        _one("kwok_operator_group_condition", "0x90", f'{_WEB},condition="Stalled"'),
        _one("kwok_operator_group_condition", "1x90", f'{_WEB},condition="Paused"'),
    ],
    "KwokNodesPending": [
        _pending("300x90"),
        _pending("0+60x90", paused="1x90"),
        _pending("0+60x90") | _instances(Failed="1x90"),
    ],
    "KwokNodeLimitReached": [_one("kwok_operator_groups_waiting_for_room", "0x90")],
    "KwokProviderConfigProblem": [_one("kwok_operator_provider_config_problems", "0x90", _PROBLEM)],
    "KwokOperatorReconcileErrors": [_passes("0+1x90")],
    "KwokOperatorApiErrors": [_requests("0+1x90", "0+60x90")],
    "KwokOperatorThrottled": [_one("kwok_operator_node_writes_throttled_total", "0+6x90")],
    "KwokOperatorWatchFails": [_restarts("closed")],
    "KwokOperatorWatchSilent": [_one("kwok_operator_watch_silence_seconds", "60x90", _WATCH)],
    "KwokControllerSilent": [_one("kwok_operator_kwok_responding", "1x90")],
    "KwokShimNotSynced": [_one("kwok_operator_shim_synced", "1x90", _SHIM)],
    "KwokShimErrors": [_calls("NOT_FOUND", "0+6x90"), _calls("INTERNAL", "0+1x90")],
    "KwokShimSlow": [_slow("0+100x90")],
}


@dataclass(frozen=True, slots=True)
class Promtool:
    """promtool, and a directory for its files."""

    program: Path
    directory: Path

    def __call__(self, *arguments: str, stdin: bytes = b"") -> None:
        """Runs it; fails with what it says."""
        done = subprocess.run(
            [self.program, *arguments],
            input=stdin,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode()

    def write(self, name: str, content: dict[str, Any]) -> str:
        (self.directory / name).write_text(yaml.safe_dump(content))
        return name


@pytest.fixture
def promtool(prometheus_tools: Tools, tmp_path: Path) -> Promtool:  # noqa: F811
    return Promtool(prometheus_tools["promtool"], tmp_path)


def test_the_rules_are_clean(promtool: Promtool) -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", promtool.write("rules.yaml", rules()))


def test_each_alert_fires_when_it_should_and_only_then(promtool: Promtool) -> None:
    names = {rule["alert"] for rule in RULES}
    assert set(BAD) == set(FINE) == names
    promtool.write("rules.yaml", rules())
    cases = [
        _case(alert, series, fires=fires)
        for table, fires in ((BAD, True), (FINE, False))
        for alert, every in table.items()
        for series in every
    ]
    promtool("test", "rules", promtool.write("test.yaml", {"rule_files": ["rules.yaml"]} | {
        "evaluation_interval": "1m", "tests": cases
    }))  # fmt: skip


def _case(alert: str, series: Series, *, fires: bool) -> dict[str, Any]:
    # Once in an hour: an alert that came and went would have been wrong, too.
    ever = f'count(count_over_time(ALERTS{{alertname="{alert}",alertstate="firing"}}[1h]))'
    return {
        "name": f"{alert}: {'fires' if fires else 'is quiet'} with {series}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": ever,
                "eval_time": "1h",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def test_each_alert_says_what_to_do() -> None:
    text = (DOCS / "monitoring.md").read_text()
    sections = dict(re.findall(r"^### (Kwok\w+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    for rule in RULES:
        alert, annotations = rule["alert"], rule["annotations"]
        assert rule["labels"]["severity"] in ("critical", "warning"), alert
        assert set(annotations) == {"summary", "description", "runbook"}, alert
        assert annotations["runbook"] == f"docs/monitoring.md#{alert.lower()}"
        for part in ("**Meaning.**", "**Check.**", "**Remedy.**"):
            assert part in sections[alert], alert


@pytest.mark.parametrize("metrics", [operator_metrics(), shim_metrics()], ids=["operator", "shim"])
def test_exposed_metrics_pass_promtool(promtool: Promtool, metrics: CollectorRegistry) -> None:
    promtool("check", "metrics", stdin=generate_latest(metrics))
