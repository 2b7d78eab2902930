"""`kwok-operator rehearse`, as people run it: a scenario, a cluster of its own, a verdict."""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.controlplane import Settings, processes
from kwok_operator.controlplane.kwokctl import cluster_directory
from tests.e2e.deploying import ROOT
from tests.e2e.kubectl import PATIENCE, eventually
from tests.e2e.rehearsals import (
    COMMAND,
    GROUP,
    autoscaler_in,
    cluster_of,
    is_there,
    play,
    verdict,
)

SMOKE = ROOT / "deploy" / "scenarios" / "smoke.yaml"
NOTHING: dict[str, Any] = {"run": {"command": ["true"]}}
"""The last step: what it waits for comes, though all was quiet for seconds while somebody slept."""
ASKING = ("NodeGroupIncreaseSize", "NodeGroupDeleteNodes")


def scenario(directory: Path, **parts: Any) -> Path:
    path = directory / "scenario.yaml"
    given = {"apply": [{"object": GROUP}], "until": {"settledFor": "2s", "atMost": "2m"}, **parts}
    path.write_text(yaml.safe_dump(given))
    return path


@contextlib.contextmanager
def playing(
    path: Path, output: Path, *, reuse: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """One that has begun, and its cluster."""
    command = [*COMMAND, str(path), f"--output={output}", *(["--reuse"] if reuse else [])]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=reuse
    ) as process:
        assert process.stdout is not None
        said = []
        try:
            for line in process.stdout:
                said.append(line)
                if line.startswith("rehearsing"):
                    break
            assert said and said[-1].startswith("rehearsing"), "".join(said)
            yield process, cluster_of("".join(said))
        finally:
            process.kill()


@pytest.mark.core
def test_a_scenario_is_played_judged_and_cleared_up(tmp_path: Path) -> None:
    done = play(SMOKE, tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    found = verdict(tmp_path / "out")
    assert found["verdict"] == "passed"
    assert found["figures"]["nodes.ready"] == 100
    assert found["figures"]["pods.running"] == 200
    assert found["figures"]["churn.created"] <= 100
    cases = ElementTree.parse(tmp_path / "out" / "junit.xml").findall(".//testcase")
    assert len(cases) == len(found["expectations"]) + 1
    again = [sys.executable, "-m", "kwok_operator", "report", str(tmp_path / "out")]
    judged = subprocess.run(
        [*again, f"--output={tmp_path / 'again'}"], capture_output=True, text=True, check=True
    )
    assert judged.stdout.splitlines() == done.stdout.splitlines()[:-1]
    for name in ("verdict.json", "junit.xml", "report.html", "summary.md", "trace.json.gz"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert not is_there(cluster_of(done.stderr))


LATE: dict[str, Any] = {
    **GROUP,
    "spec": {**GROUP["spec"], "cloud": {"provisioningDelay": {"fixed": "3s"}}},
}
LOOKS = {"name": "looks", "command": ["kubectl", "get", "nodes", "--output=name"], "ends": "must"}


def test_it_begins_once_the_cluster_is_steady(tmp_path: Path, own_cache: dict[str, str]) -> None:
    pods = {"figure": "pods.pending", "of": {"namespace": "default"}}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    toleration = [{"operator": "Exists"}]
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
    labels = {"app": "web"}
    web["spec"] = {
        "replicas": 4,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "tolerations": toleration},
        },
    }
    path = scenario(
        tmp_path,
        apply=[{"object": LATE}, {"object": web}],
        processes=[LOOKS],
        expect=[
            {"figure": "nodes.ready", "equals": 3, "when": "always"},
            {"figure": "churn.created", "equals": 0},
            {**pods, "equals": 1, "when": "always"},
        ],
    )
    done = play(path, tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "waiting until the cluster is steady: 0 of 1 groups are Ready, but not a (" in done.stderr
    )
    assert (tmp_path / "out" / "logs" / "looks.log").read_text().count("node/a-") == 3
    waits = verdict(tmp_path / "out")["figures"]["pendingSeconds.max"]
    assert waits == pytest.approx(verdict(tmp_path / "out")["seconds"], abs=0.01)


def test_one_that_is_never_steady_is_refused_unless_it_begins_at_once(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    paused = {**GROUP, "spec": {**GROUP["spec"], "paused": True}}
    parts: dict[str, Any] = {
        "apply": [{"object": paused}],
        "processes": [LOOKS],
        "expect": [{"figure": "nodes.max", "equals": 0}],
    }
    done = play(scenario(tmp_path, **parts), tmp_path / "out")
    assert done.returncode == 2, done.stdout + done.stderr
    (refused,) = [line for line in done.stderr.splitlines() if "never be steady" in line]
    for word in ("a (Paused: 0 of 3 nodes are usable", "spec.paused", "begin: atOnce"):
        assert word in refused
    assert not (tmp_path / "out" / "logs" / "looks.log").exists()
    assert not is_there(cluster_of(done.stderr))
    done = play(scenario(tmp_path, **parts, begin="atOnce"), tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr


def test_steps_are_done_and_what_does_not_hold_is_reported(tmp_path: Path) -> None:
    source = {"from": {"configMap": {"name": "nowhere"}}}
    without_template = {**GROUP, "metadata": {"name": "lost"}, "spec": {"template": source}}
    path = scenario(
        tmp_path,
        processes=[
            {
                "name": "watcher",
                "command": ["sh", "-c", "echo here; kubectl get nodes --watch -o name"],
                "ready": {"says": "^here"},
            },
            {"name": "short", "command": ["true"], "ends": "must"},
        ],
        workloads=[{"name": "web", "count": 4, "pods": {"cpu": "500m"}}],
        timeline=[
            {
                "after": {"figure": "pods.running", "of": {"workload": "web"}, "atLeast": 4},
                "scale": {"what": "deployment/web", "replicas": 6},
            },
            {
                "after": {"figure": "pods.running", "of": {"workload": "web"}, "atLeast": 6},
                "scale": {"what": "kng/a", "replicas": 5},
            },
            {
                "after": {"wait": "kng/a --for=jsonpath={.status.replicas}=5"},
                "cordon": {"group": "a", "count": 2},
            },
            {"at": "1s", "run": {"command": ["false"], "mayFail": True}},
            {"at": "1s", "apply": [{"object": without_template}]},
            {
                "after": {"wait": "kng/lost --for=condition=TemplateResolved=False"},
                **NOTHING,
            },
        ],
        expect=[
            {"figure": "pods.running", "of": {"workload": "web"}, "equals": 6},
            {"figure": "nodes.cordoned", "of": {"group": "a"}, "equals": 2},
            {"wait": "kng/a --for=jsonpath={.status.replicas}=5"},
            {"figure": "nodes.total", "of": {"group": "a"}, "atMost": 4, "when": "always"},
            {"wait": "kng/a --for=jsonpath={.status.replicas}=9", "within": "1s"},
            {"event": {"reason": "NoSuchReason"}, "atLeast": 1},
            {"figure": "warnings", "of": {"program": "operator"}, "equals": 0},
        ],
    )
    done = play(path, tmp_path / "out")
    assert done.returncode == 1, done.stdout + done.stderr
    found = verdict(tmp_path / "out")
    assert [each["held"] for each in found["expectations"]] == [True, True, True] + [False] * 4
    assert any("group=lost" in warning["message"] for warning in found["warnings"])
    assert "warning of the operator, at" in done.stdout
    assert found["end"]["reason"] == "settled"
    assert "node/a-" in (tmp_path / "out" / "logs" / "watcher.log").read_text()
    assert not is_there(cluster_of(done.stderr))


def test_what_an_autoscaler_asks_for_is_recorded(tmp_path: Path, own_cache: dict[str, str]) -> None:
    """Also of one that is stopped and started again; its shim is a new one then."""
    group = {**GROUP, "spec": {**GROUP["spec"], "targetSize": 0, "autoscaling": {"maxSize": 9}}}
    pods = {"cpu": "3", "nodeSelector": {NODE_GROUP_LABEL: "a"}}
    web, there = {"namespace": "kwok-rehearsal"}, {"figure": "pods.running", "of": {}}
    path = scenario(
        tmp_path,
        apply=[{"object": group}],
        processes=[autoscaler_in(tmp_path)],
        workloads=[{"name": "web", **web, "count": 3, "pods": pods}],
        timeline=[
            {"after": {**there, "atLeast": 3}, "stop": "ca"},
            {"after": {**there, "atLeast": 3}, "delay": "1s", "start": "ca"},
            {
                "after": {**there, "atLeast": 3},
                "delay": "1s",
                "scale": {"what": "deployment/web", "replicas": 1, **web},
            },
            {
                "after": {"figure": "churn.deleted", "of": {"group": "a"}, "atLeast": 2},
                **NOTHING,
            },
        ],
        expect=[{"figure": "nodes.total", "of": {"group": "a"}, "equals": 1}],
    )
    done = play(path, tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in gzip.open(tmp_path / "out" / "recording.jsonl.gz")]
    calls = [line["call"] for line in lines if "call" in line]
    assert {call["code"] for call in calls} == {"OK"}
    asked = {method: [c for c in calls if c["method"] == method] for method in (*ASKING, "Refresh")}
    increases, deletions, refreshes = asked.values()
    assert sum(int(call["argument"]) for call in increases) == 3
    named = {name for call in deletions for name in call["argument"].split(", ")}
    gone = {line["node"] for line in lines if "node" in line and line["is"] is None}
    assert named == gone and len(gone) == 2
    assert len(refreshes) > 2


def test_a_process_that_dies_ends_it(tmp_path: Path, own_cache: dict[str, str]) -> None:
    dies = {"name": "dies", "command": ["sh", "-c", "sleep 3; echo no more; exit 7"]}
    expect = [{"figure": "nodes.ready", "equals": 3}]
    until = {"settledFor": "60s", "atMost": "5m"}
    done = play(
        scenario(tmp_path, processes=[dies], expect=expect, until=until),
        tmp_path / "out",
        reuse=own_cache,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = verdict(tmp_path / "out")
    assert found["end"]["reason"] == "died"
    assert "exit status 7: no more" in found["end"]["detail"]


def test_machines_are_interrupted_with_notice_and_lost_without(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    spot = {"interruptions": {"hourlyRate": "0", "notice": "3s", "atATime": 1}}
    b = {"metadata": {"name": "b"}, "spec": {**GROUP["spec"], "cloud": spot}}
    told = {"reason": "Interrupted", "from": "kwok-operator"}
    path = scenario(
        tmp_path,
        apply=[{"object": GROUP}, {"object": GROUP | b}],
        timeline=[
            {"interrupt": {"group": "a", "count": 2, "notice": "5s"}},
            {"interrupt": {"group": "b", "share": 0.5}},
            {
                "after": {"figure": "churn.deleted", "of": {"group": "b"}, "atLeast": 2},
                "lose": {"selector": f"{NODE_GROUP_LABEL}=b", "count": 1},
            },
            {"after": {"figure": "churn.created", "atLeast": 5}, **NOTHING},
        ],
        expect=[
            {"event": told | {"about": "KwokNodeGroup/a"}, "atLeast": 1},
            {"event": told | {"about": "KwokNodeGroup/b"}, "atLeast": 1},
            {"figure": "nodes.total", "of": {"group": "a"}, "equals": 3, "when": {"at": "2s"}},
            {"figure": "churn.deleted", "of": {"group": "a"}, "equals": 2},
            {"figure": "churn.deleted", "of": {"group": "b"}, "equals": 3},
            {"figure": "nodes.ready", "equals": 6},
        ],
    )
    done = play(path, tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rack_is_out_for_a_time_in_all_of_its_groups(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    template = {"topology": {"domain": "racks", "levels": [{"label": "example.com/rack", "of": 2}]}}
    racked = [
        GROUP | {"metadata": {"name": name}, "spec": {"targetSize": 3, "template": template}}
        for name in "ab"
    ]
    free = {"figure": "racks.free"}
    path = scenario(
        tmp_path,
        apply=[{"object": each} for each in racked],
        timeline=[
            {"outage": {"topology": {"level": "example.com/rack"}, "for": "8s"}},
            {
                "after": free | {"equals": 2},
                "say": "out",
                "scale": {"what": "kng/a", "replicas": 5},
            },
            {
                "after": free | {"equals": 4},
                "say": "back",
                "scale": {"what": "kng/a", "replicas": 4},
            },
            {"after": {"figure": "churn.deleted", "atLeast": 1}, **NOTHING},
        ],
        expect=[
            free | {"atLeast": 2, "when": "always"},
            {"figure": "nodes.ready", "atLeast": 4, "when": "always"},
            {"figure": "nodes.ready", "equals": 7},
            {"figure": "churn.deleted", "equals": 1},
            *(
                {"event": {"reason": reason, "about": f"KwokNodeGroup/{name}"}, "atLeast": 1}
                for reason in ("Outage", "OutageOver")
                for name in "ab"
            ),
        ],
    )
    done = play(path, tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("outage begins.*racks-[012]", (tmp_path / "out" / "report.html").read_text())


@pytest.mark.parametrize("ended", ["", "kube-apiserver", "kube-scheduler", "shim"])
def test_an_unplanned_end_is_reported(tmp_path: Path, ended: str) -> None:
    path = scenario(
        tmp_path,
        until={"settledFor": "10m", "atMost": "20m"},
        expect=[{"figure": "nodes.ready", "equals": 3}],
        processes=[autoscaler_in(tmp_path)] if ended == "shim" else [],
    )
    with playing(path, tmp_path / "out") as (process, cluster):
        if ended == "shim":
            running = _programs_of(tmp_path / "out").items()
            # Its keeper has the same words, behind its own.
            shim = max(pid for pid, line in running if " -m kwok_operator shim " in line)
            os.kill(shim, signal.SIGKILL)
        elif ended:
            _kill(ended, cluster, os.environ)
        else:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == (1 if ended else 130)
    end = verdict(tmp_path / "out")["end"]
    assert end["reason"] == ("died" if ended else "interrupted")
    assert ended in end["detail"]
    assert not is_there(cluster)


def test_one_that_is_killed_leaves_no_program(tmp_path: Path) -> None:
    ticks = {"name": "ticks", "command": ["sh", "-c", "while sleep 0.2; do echo tick; done"]}
    path = scenario(
        tmp_path,
        processes=[ticks],
        until={"settledFor": "10m", "atMost": "20m"},
        expect=[{"figure": "nodes.ready", "equals": 3}],
    )
    with playing(path, tmp_path / "out") as (process, cluster):
        process.kill()
        process.wait()
    eventually(
        lambda: _programs_of(tmp_path / "out"),
        lambda running: not running,
        describe="the programs have ended",
    )
    done = play(SMOKE, tmp_path / "next")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not is_there(cluster)


TRACES: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left", "namespace": "default"}},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "left"}},
]
SPOILS = [
    *("sh", "-c"),
    "kubectl delete crd kwoknodegroups.kwok-operator.io; rm -f $KUBECONFIG; echo spoilt",
]


def test_a_cluster_that_is_used_again_is_as_new(tmp_path: Path, own_cache: dict[str, str]) -> None:
    """After a rehearsal that spoiled it and was killed, and after the end of a component."""
    spoils = scenario(
        tmp_path,
        apply=[{"object": each} for each in (GROUP, *TRACES)],
        processes=[{"name": "spoils", "command": SPOILS, "ends": "may"}],
        until={"settledFor": "10m", "atMost": "20m"},
        expect=[{"figure": "nodes.ready", "equals": 3}],
    )
    with playing(spoils, tmp_path / "spoilt", reuse=own_cache) as (process, cluster):
        log = tmp_path / "spoilt" / "logs" / "spoils.log"
        eventually(log.read_text, lambda text: "spoilt" in text, describe="the CRD is gone")
        process.kill()
    looks = "kubectl get ns,cm -A -o name; kubectl get kng,nodes -o name"
    path = scenario(
        tmp_path,
        processes=[{"name": "looks", "command": ["sh", "-c", looks], "ends": "must"}],
        expect=[{"figure": "nodes.ready", "equals": 3}, {"figure": "warnings", "equals": 0}],
    )
    done = play(path, tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"putting cluster {cluster} back" in done.stderr
    seen = (tmp_path / "out" / "logs" / "looks.log").read_text()
    assert seen.count("node/a-") == 3 and "left" not in seen, seen
    _kill("kube-controller-manager", cluster, own_cache)
    done = play(path, tmp_path / "anew", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"creating cluster {cluster}" in done.stderr


def _kill(component: str, cluster: str, environment: Mapping[str, str]) -> None:
    directory = cluster_directory(cluster, settings=Settings.from_environ(environment))
    os.kill(processes.recorded(directory)[component], signal.SIGKILL)


def _programs_of(output: Path) -> dict[int, str]:
    """Command lines of programs that know the rehearsal's folder, or are its ticking process."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(output) in line or "echo tick" in line:
                found[int(entry.name)] = line
    return found
