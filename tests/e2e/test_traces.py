"""`kwok-operator record` and `replay` on a real control plane, with the rights in deploy/."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from kwok_operator.importing.traces.cleaning import cleaner
from kwok_operator.importing.traces.files import Findings, read_trace
from kwok_operator.importing.traces.trace import Event, Gap, Happening, Line, TracedShape
from tests.chaos.cutter import Cutter
from tests.e2e.api import NODES
from tests.e2e.kubectl import PATIENCE, Kubectl, eventually
from tests.e2e.rights import kubeconfig_of

DEPLOY = Path(__file__).parents[2] / "deploy"
PREFIX = "again-"
CONTAINERS = [{"name": "x", "image": "secret/image:1", "env": [{"name": "A", "value": "secret"}]}]
POD = {"spec": {"containers": CONTAINERS, "terminationGracePeriodSeconds": 0}}


def account(kubectl: Kubectl, command: str, folder: Path) -> Path:
    """A kubeconfig of one who may do this, and no more."""
    kubectl("apply", f"--kustomize={DEPLOY / command}")
    name = f"kwok-operator-{command}"
    path = folder / f"{command}.kubeconfig"
    path.write_text(kubeconfig_of(kubectl, name, namespace=name))
    return path


def lines_of(path: Path) -> list[tuple[str, Line]]:
    try:
        return list(read_trace(path, clean=cleaner(places={}), findings=Findings()))
    except Exception:
        return []


def sequence(path: Path, namespace: str) -> list[Any]:
    """What happened in a namespace, without times and what is made up."""
    shapes = {line.id: line.body for _, line in lines_of(path) if isinstance(line, TracedShape)}
    found = []
    for _, line in lines_of(path):
        if isinstance(line, Event) and line.key.namespace == namespace:
            shape = {**shapes[line.shape]} if line.shape else {}
            labels = shape.get("metadata", {}).get("labels", {})
            labels.pop("kwok-operator.io/replayed", None)
            name = line.prefix or line.key.name
            name = "worker-" if name.startswith("worker-") else name
            what = (line.key.kind, name, line.replicas, line.phase)
            if line.key.kind in ("Deployment", "Job"):
                shape = shape.get("spec", {})
            else:
                shape = {**shape, "metadata": {}} if not labels else shape
            found.append((line.happening.value, *what, shape))
    return found


@contextmanager
def recording(kubeconfig: Path, output: Path) -> Iterator[None]:
    """Of all that happens in the block, once the recorder watches."""
    command = [sys.executable, "-m", "kwok_operator", "record", f"--kubeconfig={kubeconfig}"]
    process = subprocess.Popen(
        [*command, f"--output={output}"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert said.startswith("recording"), said
        yield
    finally:
        process.terminate()
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + errors


def replay(kubeconfig: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "kwok_operator", "replay", f"--kubeconfig={kubeconfig}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def namespace(kubectl: Kubectl, group_name: str) -> Iterator[str]:
    """Empty, beside a node that pods can run on."""
    capacity = {"cpu": "32", "memory": "64Gi", "pods": "110"}
    annotations = {"kwok.x-k8s.io/node": "fake"}
    node = {"metadata": {"name": group_name, "annotations": annotations}}
    kubectl.api.create(NODES, {**node, "status": {"capacity": capacity, "allocatable": capacity}})
    kubectl("create", "namespace", group_name)
    yield group_name
    kubectl("delete", "namespace", group_name, f"{PREFIX}{group_name}", "--ignore-not-found")
    kubectl.api.delete(f"{NODES}/{group_name}")


def told(path: Path, namespace: str, *happenings: str) -> None:
    """Waits until the trace tells of so many things; the file is flushed every two seconds."""
    eventually(
        lambda: [each[0] for each in sequence(path, namespace)],
        lambda found: sorted(found) == sorted(happenings),
        describe="the trace tells it",
    )


def live(kubectl: Kubectl, namespace: str, trace: Path) -> None:
    """What happens to the workloads, one after the other: the trace has each before the next."""
    labels = {"app": "cart"}
    template = {"metadata": {"labels": labels}, **POD}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    kubectl.api.create(deployments, {"metadata": {"name": "cart"}, "spec": spec})
    kubectl.api.create(pods, {"metadata": {"name": "alone"}, **POD})
    kubectl.api.create(pods, {"metadata": {"generateName": "worker-"}, **POD})
    told(trace, namespace, *["create"] * 3)
    kubectl("scale", "deployment/cart", "--replicas=5", f"--namespace={namespace}")
    told(trace, namespace, *["create"] * 3, "scale")
    kubectl(
        *("set", "resources", "deployment/cart", "--requests=cpu=100m", f"--namespace={namespace}")
    )
    told(trace, namespace, *["create"] * 3, "scale", "update")
    once = {"template": {"spec": {**POD["spec"], "restartPolicy": "Never"}}}
    kubectl.api.create(jobs, {"metadata": {"name": "once"}, "spec": once})
    told(trace, namespace, *["create"] * 4, "scale", "update", "end")
    kubectl("delete", "deployment/cart", "pod/alone", f"--namespace={namespace}")
    told(trace, namespace, *["create"] * 4, "scale", "update", "end", *["delete"] * 2)


def test_a_replay_is_recorded_as_the_same(kubectl: Kubectl, namespace: str, tmp_path: Path) -> None:
    recorder, player = (account(kubectl, each, tmp_path) for each in ("record", "replay"))
    first, second = tmp_path / "first.jsonl.gz", tmp_path / "second.jsonl.gz"
    with recording(recorder, first):
        live(kubectl, namespace, first)
    written = sequence(first, namespace)
    assert "secret" not in str(lines_of(first))
    # All that happened elsewhere meanwhile is not for this test.
    mine = tmp_path / "mine.jsonl"
    text = subprocess.run(["zcat", first], capture_output=True, text=True, check=True).stdout
    mine.write_text(
        "".join(
            f"{line}\n"
            for line in text.splitlines()
            if '"namespace":' not in line or f'"namespace":"{namespace}"' in line
        )
    )
    flags = (f"--namespace-prefix={PREFIX}", "--into-recorded-cluster", str(mine))
    with recording(recorder, second):
        said = replay(player, *flags)
        told(second, f"{PREFIX}{namespace}", *[each[0] for each in written])
    assert "refused" not in said
    key = str
    assert sorted(sequence(second, f"{PREFIX}{namespace}"), key=key) == sorted(written, key=key)
    replay(player, "--clean")
    left = kubectl(
        "get", "namespaces", f"--field-selector=metadata.name={PREFIX}{namespace}", "-o=yaml"
    )
    assert "deletionTimestamp" in left or "items: []" in left


async def test_nothing_is_missing_where_the_connection_was_cut(
    kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    path = await asyncio.to_thread(account, kubectl, "record", tmp_path)
    config = yaml.safe_load(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    cutter = Cutter(to_port=urlsplit(cluster["server"]).port or 443)
    await cutter.start()
    cluster["server"] = f"https://127.0.0.1:{cutter.port}"
    path.write_text(yaml.safe_dump(config))
    trace, pods = tmp_path / "trace.jsonl.gz", f"/api/v1/namespaces/{namespace}/pods"

    def create(name: str) -> None:
        kubectl.api.create(pods, {"metadata": {"name": name}, **POD})

    record = recording(path, trace)
    await asyncio.to_thread(record.__enter__)
    await asyncio.to_thread(create, "before")
    await asyncio.to_thread(told, trace, namespace, "create")
    await cutter.unplug()
    await asyncio.to_thread(create, "meanwhile")
    await asyncio.to_thread(kubectl, "delete", "pod/before", f"--namespace={namespace}")
    await cutter.start()
    await asyncio.to_thread(told, trace, namespace, "create", "create", "delete")
    await asyncio.to_thread(record.__exit__, None, None, None)
    await cutter.unplug()
    lines = [line for _, line in lines_of(trace)]
    gaps = [line for line in lines if isinstance(line, Gap) and line.kind == "Pod"]
    assert [gap.lost for gap in gaps] == [False]
    after = lines[lines.index(gaps[0]) :]
    found = [x for x in after if isinstance(x, Event) and x.key.namespace == namespace]
    assert [(line.happening, line.key.name, line.late) for line in found] == [
        (Happening.CREATE, "meanwhile", False),
        (Happening.DELETE, "before", False),
    ]
