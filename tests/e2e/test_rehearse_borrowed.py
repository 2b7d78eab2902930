"""`kwok-operator rehearse --kubeconfig`: a cluster of others is left as it was before."""

import gzip
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from kwok_operator.controlplane import Cluster, revive
from kwok_operator.schema.crd import CRD_DIRECTORY
from tests import chaos as clock_of_chaos
from tests.e2e.api import GROUPS
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.kubectl import PATIENCE, Kubectl, eventually
from tests.e2e.rehearsals import COMMAND, GROUP, karpenter_in, verdict

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "10"}
PODS = {"containers": [{"name": "main", "image": "none"}]}
EVERYWHERE = {"tolerations": [{"operator": "Exists"}]}
CLOCK = Path(clock_of_chaos.__file__).parent / "clock"
AHEAD = 50.0
"""Seconds: more than anything is late, and less than is refused."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kwok-operator/leases"


def controller(kind: str, name: str, *, namespace: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {**PODS, **EVERYWHERE}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


THEIRS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}},
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "real",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"tier": "all"},
        },
        "status": {"allocatable": ROOM, "capacity": ROOM},
    },
    controller("Deployment", "cart", namespace="shop", replicas=2),
    controller("DaemonSet", "agent", namespace="shop"),
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default"},
        "data": {"a": "1"},
    },
]

OURS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "c"}}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}},
    controller(
        "StatefulSet",
        "queue",
        namespace="shop",
        serviceName="queue",
        volumeClaimTemplates=[
            {
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        ],
    ),
]


@dataclass(frozen=True)
class Theirs:
    """A cluster that others use."""

    cluster: Cluster
    kubectl: Kubectl
    kubeconfig: Path
    """Its context is not the current one, which leads nowhere."""

    def command(self, *arguments: str) -> list[str]:
        return [*COMMAND, *arguments, f"--kubeconfig={self.kubeconfig}", "--context=theirs"]

    def run(self, *arguments: str, ahead: float = 0) -> subprocess.CompletedProcess[str]:
        """`ahead`: seconds by which our clock is ahead of the cluster's."""
        command, environment = self.command(*arguments), dict(os.environ)
        if ahead:
            clock = self.kubeconfig.with_name("clock")
            clock.write_text(f"{ahead}")
            paths = [str(CLOCK), environment.get("PYTHONPATH", "")]
            environment |= {"CHAOS_CLOCK": str(clock), "PYTHONPATH": os.pathsep.join(paths)}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, env=environment
        )

    @contextmanager
    def begun(self, path: str, output: Path) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
        """A rehearsal whose clock has started, and the rest of its stderr."""
        command = self.command(path, f"--output={output}")
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert any(line.startswith("rehearsing") for line in process.stderr)
            yield process, process.stderr

    def objects(self) -> dict[str, Any]:
        """All that is in the cluster, but for Events, and for what is written all the time."""
        api, found = self.kubectl.api, dict[str, Any]()
        groups = api.get("/apis")["groups"]
        roots = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
        for root in ("/api/v1", *roots):
            for kind in api.get(root)["resources"]:
                if "list" not in kind["verbs"] or kind["kind"] == "Event":
                    continue
                for item in api.get(f"{root}/{kind['name']}")["items"]:
                    name = f"{item['metadata'].get('namespace')}/{item['metadata']['name']}"
                    written = kind["kind"] == "Lease"
                    found[f"{kind['kind']} {name}"] = {} if written else _lasting(item)
        return found

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        before = self.objects()
        yield
        eventually(
            lambda: _differences(before, self.objects()),
            lambda found: not found,
            describe="all is as it was before",
        )


def _lasting(item: dict[str, Any]) -> dict[str, Any]:
    for each in ("resourceVersion", "managedFields"):
        item["metadata"].pop(each, None)
    for condition in item.get("status", {}).get("conditions", ()):
        condition.pop("lastHeartbeatTime", None)
    return item


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += [
                f"{key}.{part}: {old.get(part)} -> {new.get(part)}"
                for part in sorted({*old, *new})
                if old.get(part) != new.get(part)
            ]
        elif old != new:
            found.append(f"{key}: {'is new' if old is None else 'is gone'}")
    return found


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theirs]:
    directory = tmp_path_factory.mktemp("theirs")
    with bare_cluster("theirs", directory=directory) as (cluster, kubectl):
        config = kubectl.json("config", "view", "--raw", "--minify", "--flatten")
        config["contexts"][0]["name"] = "theirs"
        config["contexts"][0]["context"]["namespace"] = "shop"
        nowhere = {"cluster": "nowhere", "user": config["contexts"][0]["context"]["user"]}
        config["contexts"].append({"name": "nowhere", "context": nowhere})
        config["clusters"].append({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}})
        config["current-context"] = "nowhere"
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        kubectl.apply({"apiVersion": "v1", "kind": "List", "items": THEIRS})
        kubectl("rollout", "status", "deployment/cart", "-n=shop", "--timeout=240s")
        kubectl("rollout", "status", "daemonset/agent", "-n=shop", "--timeout=240s")
        yield Theirs(cluster, kubectl, kubeconfig)


def scenario(directory: Path, **parts: Any) -> str:
    given: dict[str, Any] = {
        "apply": [{"object": GROUP}],
        "until": {"settledFor": "2s", "atMost": "2m"},
        "expect": [{"figure": "nodes.ready", "equals": 3}],
        **parts,
    }
    path = directory / "scenario.yaml"
    path.write_text(yaml.safe_dump(given))
    return str(path)


def test_a_played_scenario_leaves_all_as_it_was(theirs: Theirs, tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "ours.yaml").write_text(yaml.safe_dump_all(OURS))
    path = scenario(
        tmp_path,
        apply=["ours/", {"object": GROUP}],
        workloads=[
            {"name": "web", "count": 6, "pods": {"cpu": "100m"}},
            {"name": "load", "kind": "Pods", "count": 3, "namespace": "load", "pods": {"cpu": 1}},
            {"name": "batch", "kind": "Job", "count": 2, "namespace": "shop", "pods": {"cpu": 1}},
        ],
        timeline=[
            {
                "after": {"figure": "pods.running", "of": {"workload": "web"}, "atLeast": 6},
                "patch": {
                    "what": "kng/a",
                    "patch": {"spec": {"targetSize": 5, "template": {"shape": {"labels": {}}}}},
                },
            },
            {"at": "3s", "cordon": {"selector": "kubernetes.io/os=linux"}},
            {"at": "4s", "delete": {"what": "configmap/more"}},
            {"after": {"figure": "nodes.ready", "atLeast": 5}, "run": {"command": ["true"]}},
        ],
        expect=[
            {"figure": "nodes.ready", "equals": 5},
            {"figure": "nodes.cordoned", "atMost": 5},
            {"figure": "nodes.cordoned", "atLeast": 3},
            {"figure": "pods.running", "of": {"workload": "web"}, "equals": 6},
            {"figure": "pods.running", "atMost": 11, "when": "always"},
        ],
    )
    with theirs.unchanged():
        done = theirs.run(path, f"--output={tmp_path / 'out'}")
        assert done.returncode == 0, done.stdout + done.stderr
    assert verdict(tmp_path / "out")["end"]["reason"] == "settled"
    assert not list((tmp_path / "out" / "logs").glob("*kubeconfig*"))


def with_karpenter(directory: Path, *objects: dict[str, Any], **parts: Any) -> str:
    spec = {"autoscaling": {}, "price": {"hourly": "0.5"}, "template": GROUP["spec"]["template"]}
    pods = {"cpu": 1, "labels": {"app": "web"}}
    return scenario(
        directory,
        apply=[{"object": each} for each in ({**GROUP, "spec": spec}, *objects)],
        processes=[karpenter_in(directory)],
        workloads=[{"name": "web", "count": 6, "pods": pods}],
        expect=[{"figure": "nodes.total", "of": {"group": "a"}, "equals": 2}],
        **parts,
    )


def test_karpenter_takes_its_nodes_away_before_it_ends(theirs: Theirs, tmp_path: Path) -> None:
    path = with_karpenter(
        tmp_path,
        until={"condition": {"figure": "nodeClaims.registered", "atLeast": 2}, "atMost": "2m"},
    )
    with theirs.unchanged():
        done = theirs.run(path, f"--output={tmp_path / 'out'}")
        assert done.returncode == 0, done.stdout + done.stderr
    assert "go without it" not in done.stderr and "still there" not in done.stderr


def karpenters_process(output: Path) -> int:
    """The id of the Karpenter of the rehearsal with this output; its keeper has the same
    environment, and ends with it.
    """
    types = f"INSTANCE_TYPES_FILE_PATH={output}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_keeper = b"kwok_operator.rehearsal.keeper" in (path / "cmdline").read_bytes()
            if types in (path / "environ").read_bytes() and not is_keeper:
                return int(path.name)
    raise AssertionError("no Karpenter is running")


@pytest.mark.parametrize("ended", ["interrupted", "killed", "without Karpenter"])
def test_a_drain_that_a_budget_forbids_leaves_nothing(
    theirs: Theirs, tmp_path: Path, ended: str
) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }
    path = with_karpenter(
        tmp_path,
        budget,
        timeline=[
            {
                "after": {"figure": "pods.running", "of": {"workload": "web"}, "atLeast": 6},
                "interrupt": {"group": "a", "count": 2, "notice": "10m"},
            }
        ],
        until={"settledFor": "10m", "atMost": "20m"},
    )
    with theirs.unchanged():
        with theirs.begun(path, tmp_path / "out") as (process, stderr):
            eventually(
                lambda: theirs.kubectl.json("get", "nodes", "--selector=karpenter.sh/nodepool"),
                lambda found: (
                    len(found["items"]) == 2
                    and all("deletionTimestamp" in each["metadata"] for each in found["items"])
                ),
                describe="its nodes are being drained",
            )
            if ended == "without Karpenter":
                os.kill(karpenters_process(tmp_path / "out"), signal.SIGKILL)
            else:
                process.send_signal(signal.SIGINT if ended == "interrupted" else signal.SIGKILL)
            said = stderr.read()
            process.wait(PATIENCE)
        if ended == "killed":
            cleared = theirs.run("--clear")
            assert (cleared.returncode, cleared.stdout) == (0, ""), cleared.stderr
            said = cleared.stderr
    assert ("so they go without it" in said) == (ended != "interrupted"), said
    assert "still there" not in said


def test_a_clock_that_is_off_loses_no_wait(theirs: Theirs, tmp_path: Path) -> None:
    pods = {"name": "web", "count": 20, "pods": {"cpu": "100m"}}
    never = {"name": "never", "count": 1, "pods": {"cpu": 90}}
    path = scenario(tmp_path, workloads=[pods, never])
    done = theirs.run(path, f"--output={tmp_path / 'out'}", ahead=AHEAD)
    assert done.returncode == 0, done.stdout + done.stderr
    found = verdict(tmp_path / "out")
    lines = [json.loads(line) for line in gzip.open(tmp_path / "out" / "recording.jsonl.gz")]
    first = dict[str, Any]()
    for line in lines:
        if "pod" in line and line["is"]:
            first.setdefault(line["pod"], line)
    assert len(first) == 21
    late = {name: line for name, line in first.items() if not 0 <= line["is"]["created"] < AHEAD}
    assert late == {}
    assert found["workloads"]["Deployment/default/web"]["pendingSeconds.mean"] < AHEAD
    assert found["clock"]["ahead"] == pytest.approx(-AHEAD, abs=found["clock"]["error"] + 0.01)
    assert found["clock"]["error"] < 0.5


def test_a_clock_that_is_far_off_is_refused(theirs: Theirs, tmp_path: Path) -> None:
    with theirs.unchanged():
        done = theirs.run(scenario(tmp_path), f"--output={tmp_path / 'out'}", ahead=90)
        assert done.returncode == 2
        told = re.search(r"clock is (.+) s behind .*give or take (.+) s\).*NTP", done.stderr)
        assert told, done.stderr
        assert float(told[1]) == pytest.approx(90, abs=float(told[2]) + 0.1)


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_one_that_was_ended_leaves_all_as_it_was(theirs: Theirs, tmp_path: Path, how: str) -> None:
    path = scenario(
        tmp_path,
        workloads=[{"name": "web", "count": 3, "pods": {"cpu": 1}}],
        until={"settledFor": "10m", "atMost": "20m"},
    )
    with theirs.unchanged():
        with theirs.begun(path, tmp_path / "out") as (process, stderr):
            eventually(
                lambda: theirs.kubectl.json("get", "kng", "a")["status"]["readyReplicas"] == 3,
                describe="its nodes are there",
            )
            process.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
            stderr.read()
            status = process.wait(PATIENCE)
        if how == "interrupted":
            assert status == 130
            assert verdict(tmp_path / "out")["end"]["reason"] == "interrupted"
            return
        refused = theirs.run(path, f"--output={tmp_path / 'next'}")
        assert refused.returncode == 2
        assert "--clear" in refused.stderr
        cleared = theirs.run("--clear")
        assert (cleared.returncode, cleared.stdout) == (0, ""), cleared.stderr


@contextmanager
def a_service(theirs: Theirs) -> Iterator[None]:
    ports = [{"port": 80}]
    spec = {"selector": {"app": "web"}, "ports": ports}
    metadata = {"name": "shop-front", "namespace": "default"}
    theirs.kubectl.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    )
    try:
        yield
    finally:
        theirs.kubectl("delete", "service", "shop-front", "--namespace=default")


@contextmanager
def kwok_that_stands_still(theirs: Theirs) -> Iterator[None]:
    pid = theirs.cluster.pid("kwok-controller")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        # What it was told meanwhile it would act upon: a Lease of a node that is gone by then.
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "kwok-controller" in theirs.cluster.dead(), describe="kwok is gone")
        revive(theirs.cluster)


@contextmanager
def other_crds(theirs: Theirs) -> Iterator[None]:
    (crd,) = yaml.safe_load_all(
        (CRD_DIRECTORY / "kwok-operator.io_kwoknodegroups.yaml").read_text()
    )
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["extra"] = {
        "type": "string"
    }
    with applied(theirs, crd):
        yield


@contextmanager
def a_group(theirs: Theirs) -> Iterator[None]:
    """With CRDs that are ours: these are no reason."""
    theirs.kubectl("apply", "--server-side", f"--filename={CRD_DIRECTORY}")
    try:
        eventually(
            lambda: theirs.kubectl.api.create(GROUPS, {**GROUP, "metadata": {"name": "theirs"}}),
            describe="a group is there",
        )
        yield
    finally:
        theirs.kubectl("delete", f"--filename={CRD_DIRECTORY}")


@contextmanager
def an_operator(theirs: Theirs) -> Iterator[None]:
    """As far as can be seen: its Lease is renewed."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kwok-operator"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 10},
    }
    ended = threading.Event()

    def renew() -> None:
        n = 0
        while not ended.wait(0.5):
            n += 1
            patch = {"spec": {"leaseTransitions": n}}
            theirs.kubectl.api.patch(f"{LEASES}/kwok-operator", patch)

    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kwok-operator"}}
    with applied(theirs, namespace):
        theirs.kubectl.api.create(LEASES, lease)
        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()


@contextmanager
def applied(theirs: Theirs, manifest: dict[str, Any]) -> Iterator[None]:
    theirs.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(manifest))
    try:
        yield
    finally:
        name = f"{manifest['kind']}/{manifest['metadata']['name']}"
        theirs.kubectl("delete", name)


SETTINGS = {"object": {**THEIRS[-1], "data": {"a": "2"}}}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"apply": [SETTINGS]}, "ConfigMap default/settings"),
        (
            {"workloads": [{"name": "cart", "namespace": "shop", "count": 1, "pods": {"cpu": 1}}]},
            "Deployment shop/cart",
        ),
        (
            {
                "timeline": [
                    {
                        "at": 1,
                        "scale": {"what": "deployment/cart", "namespace": "shop", "replicas": 0},
                    }
                ]
            },
            "timeline[0], scale: deployment/cart",
        ),
    ],
)
def test_objects_in_the_way_are_reported(
    theirs: Theirs, tmp_path: Path, parts: dict[str, Any], said: str
) -> None:
    with theirs.unchanged():
        done = theirs.run(scenario(tmp_path, **parts), f"--output={tmp_path / 'out'}")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("disturbed", "said"),
    [
        (an_operator, "an operator is at work"),
        (other_crds, "another version"),
        (a_group, "KwokNodeGroup theirs"),
        (a_service, "services default/shop-front"),
        (kwok_that_stands_still, "no kwok controller"),
    ],
)
def test_an_unfit_cluster_is_refused(
    theirs: Theirs,
    tmp_path: Path,
    disturbed: Callable[[Theirs], AbstractContextManager[object]],
    said: str,
) -> None:
    path = scenario(tmp_path, workloads=[{"name": "web", "count": 1, "pods": {"cpu": 1}}])
    with theirs.unchanged(), disturbed(theirs):
        done = theirs.run(path, f"--output={tmp_path / 'out'}")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("verbs", "said"), [([], "may not: "), (["get", "create", "list", "delete"], "not grant")]
)
def test_an_account_that_may_not_is_refused(
    theirs: Theirs, tmp_path: Path, verbs: list[str], said: str
) -> None:
    """Also one that may do all that the rehearsal does itself, and less than its operator."""
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}] if verbs else []
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
    binding = {
        "apiVersion": role["apiVersion"],
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "shop"}],
    }
    config = json.loads(theirs.kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {}} for each in config["users"]]
    config["users"][0]["user"] = {
        "token": theirs.kubectl("create", "token", "default", "-n=shop").strip()
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    named = {"metadata": {"name": "some"}}
    with applied(theirs, role | named), applied(theirs, binding | named), theirs.unchanged():
        done = subprocess.run(
            [*COMMAND, scenario(tmp_path), f"--kubeconfig={kubeconfig}", "--context=theirs"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 2
        assert said in done.stderr
