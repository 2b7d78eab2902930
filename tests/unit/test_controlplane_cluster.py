"""The life of a cluster, with a kwokctl that starts processes which only sleep."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kwok_operator.controlplane import (
    ClusterError,
    ControlPlaneError,
    Settings,
    create,
    delete,
    get,
    revive,
)
from kwok_operator.controlplane.kwokctl import Flags
from kwok_operator.controlplane.lifecycle import names
from kwok_operator.controlplane.processes import running

from .controlplane_fakes import machine, quiet, settings_for, tool


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    settings = machine(tmp_path)
    yield settings
    for name in names(settings=settings):
        delete(name, settings=settings)


def calls(settings: Settings) -> list[str]:
    return Path(settings.environ["FAKE_LOG"]).read_text(encoding="utf-8").splitlines()


def test_what_kwokctl_is_given(tmp_path: Path, settings: Settings) -> None:
    cluster = create("one", settings=settings, extra_args=["--heartbeat-factor", "1"])
    [call] = calls(settings)
    assert call.startswith("create cluster --name one --runtime binary --config ")
    assert call.endswith(" --heartbeat-factor 1")
    assert f"--kwok-controller-binary {tmp_path / 'path' / 'kwok'} " in call
    assert f"--etcd-binary {tmp_path / 'path' / 'etcd'} " in call
    assert "KWOK_RUNTIME" in settings.environ
    options = Path(settings.environ["FAKE_LOG"] + "-options").read_text(encoding="utf-8")
    assert options == "KWOK_KUBE_VERSION KWOK_WORKDIR\n"
    assert cluster.directory == settings.cache / "kwok" / "clusters" / "one"
    assert cluster.kubeconfig.is_relative_to(settings.cache)
    assert cluster.kubernetes_version == "1.36.3"
    assert not cluster.borrowed
    assert get("one", settings=settings) == cluster
    assert names(settings=settings) == ["one"]


def test_kwoks_own_stages_are_applied(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "silent").touch()
    factor = ["--slowly", "--heartbeat-factor", "2"]
    pid = create("one", settings=settings, stages=True, extra_args=factor).pid("etcd")
    asked, made = calls(settings)
    crds = "--enable-crds=Stage,ClusterResourceUsage,ResourceUsage,Metric"
    assert made == f"{asked.replace('discarded', 'kubeconfig')} {crds}"
    assert asked.endswith("--heartbeat-factor 2")
    failed, applied = (tmp_path / "silent-applied").read_text(encoding="utf-8").splitlines()
    assert failed == applied
    file = applied.rpartition("--filename=")[2]
    stages = list(yaml.safe_load_all(Path(file).read_text(encoding="utf-8")))
    assert [(s["kind"], s["metadata"]["name"]) for s in stages] == [
        ("Stage", "node"),
        ("Stage", "pod"),
    ]
    assert len(running(settings.cache / "kwok" / "clusters" / "one")) == 2
    assert pid == create("one", settings=settings, stages=True, reuse=True, extra_args=factor).pid(
        "etcd"
    )
    assert pid != create("one", settings=settings, reuse=True, extra_args=factor).pid("etcd")


def test_kwoks_own_stages_are_not_there(settings: Settings) -> None:
    with pytest.raises(ClusterError, match="it wrote none"):
        create("one", settings=settings, stages=True, extra_args=["--enable-crds=Stage"])
    assert not running(settings.cache / "kwok" / "clusters" / "one")


@pytest.mark.parametrize("ours", [True, False])
def test_limits_are_raised_and_kwok_manages_its_nodes_alone(settings: Settings, ours: bool) -> None:
    cluster = create("one", settings=settings, manage_all_nodes=not ours, raised_limits=ours)
    # The stand-in writes the configuration it was given there.
    config = cluster.kubeconfig.read_text(encoding="utf-8")
    assert '"bindAddress": "127.0.0.1"' in config
    assert ('"value": "kwok.x-k8s.io/node=fake"' in config) is ours
    kwokctl, *others = yaml.safe_load_all(config)
    flags = {
        each["name"]: {argument["key"] for argument in each["extraArgs"]}
        for each in kwokctl["componentsPatches"]
    }
    for component in ("kube-controller-manager", "kube-scheduler"):
        assert (flags.get(component) == {"kube-api-qps", "kube-api-burst"}) is ours
    assert [each["kind"] for each in others] == ["KwokConfiguration"] * ours


def test_flags_come_after_ours(settings: Settings) -> None:
    flags = {"kube-scheduler": {"kube-api-qps": "5"}, "kwok-controller": {"v": "-4"}}
    cluster = create("one", settings=settings, flags=flags)
    kwokctl, *_ = yaml.safe_load_all(cluster.kubeconfig.read_text(encoding="utf-8"))
    given = [
        (each["name"], argument["key"], argument["value"])
        for each in kwokctl["componentsPatches"]
        for argument in each["extraArgs"]
    ]
    assert given[-2:] == [("kube-scheduler", "kube-api-qps", "5"), ("kwok-controller", "v", "-4")]
    assert ("kube-scheduler", "kube-api-qps", "1000") in given


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"kubelet": {}}, "'kubelet': a cluster has etcd, "),
        ({"etcd": {"--v": "4"}}, "'--v' of etcd: "),
        ({"etcd": {"v=4": ""}}, "'v=4' of etcd: "),
        ({"etcd": {"v": "\0"}}, "v of etcd: "),
    ],
)
def test_flags_that_no_program_has(tmp_path: Path, flags: Flags, named: str) -> None:
    with pytest.raises(ClusterError, match=named):
        create("one", settings=settings_for(tmp_path), flags=flags)
    assert not (tmp_path / "cache").exists()


def test_ports_are_free_ones_from_the_first_that_is_given(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first: int = taken.getsockname()[1]
        cluster = create("one", settings=dataclasses.replace(settings, first_port=first))
    kwokctl, *_ = yaml.safe_load_all(cluster.kubeconfig.read_text(encoding="utf-8"))
    ports = [value for key, value in kwokctl["options"].items() if key.endswith("Port")]
    assert len(set(ports)) == 6 and all(first < port < first + 1000 for port in ports)


@pytest.mark.parametrize("text", ["twenty", "0", "70000", "-1"])
def test_a_port_that_is_none(text: str) -> None:
    with pytest.raises(ControlPlaneError, match=f"KWOK_OPERATOR_PORTS_FROM: '{text}'"):
        Settings.from_environ({"KWOK_OPERATOR_PORTS_FROM": text})


def test_there_are_no_more_ports(settings: Settings) -> None:
    with pytest.raises(ClusterError, match="there are not 6 from 65535 upwards"):
        create("one", settings=dataclasses.replace(settings, first_port=65535))


def test_reuse(settings: Settings) -> None:
    first = create("one", settings=settings)
    pid = first.pid("etcd")
    os.kill(pid, signal.SIGSTOP)
    assert create("one", settings=settings, reuse=True).pid("etcd") == pid
    assert _state_of(pid) != "T", "what a killed test left stopped runs again"
    assert create("one", settings=settings).pid("etcd") != pid


def _state_of(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        return stat.read_text(encoding="ascii").rpartition(") ")[2][:1]
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout[:1]


def test_no_reuse_with_other_options(settings: Settings) -> None:
    pid = create("one", settings=settings).pid("etcd")
    reporter, said = quiet()
    other = create("one", settings=settings, reuse=True, manage_all_nodes=True, reporter=reporter)
    assert "replacing cluster one: it has other versions or flags\n" in said.getvalue()
    assert other.pid("etcd") != pid
    assert len(running(other.directory or Path())) == 2


@pytest.mark.parametrize(("patience", "same"), [(60.0, True), (0.0, False)])
def test_reuse_of_what_answers_late(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, patience: float, same: bool
) -> None:
    pid = create("one", settings=settings).pid("etcd")
    monkeypatch.setattr("kwok_operator.controlplane.lifecycle._ANSWER_SECONDS", patience)
    (tmp_path / "silent").touch()
    reporter, said = quiet()
    again = create("one", settings=settings, reuse=True, reporter=reporter)
    assert (again.pid("etcd") == pid) is same
    assert ("cluster one: it does not answer" not in said.getvalue()) is same


def test_no_reuse_of_half_a_cluster(settings: Settings) -> None:
    cluster = create("one", settings=settings)
    pid = cluster.pid("etcd")
    os.kill(cluster.pid("kwok-controller"), signal.SIGKILL)
    reporter, said = quiet()
    assert create("one", settings=settings, reuse=True, reporter=reporter).pid("etcd") != pid
    assert "replacing cluster one: kwok-controller ended\n" in said.getvalue()


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"kubectl": 1, "kwokctl": "", "options": {}}'])
def test_no_reuse_of_a_cluster_with_a_damaged_state(settings: Settings, state: str) -> None:
    pid = create("one", settings=settings).pid("etcd")
    (settings.cache / "clusters" / "one" / "state.json").write_text(state, encoding="utf-8")
    reporter, said = quiet()
    with pytest.raises(ClusterError, match="finding cluster one: there is none"):
        get("one", settings=settings)
    assert create("one", settings=settings, reuse=True, reporter=reporter).pid("etcd") != pid
    assert "replacing cluster one: its state.json is missing or damaged\n" in said.getvalue()


def test_pids_of_other_programs_are_left_alone(settings: Settings) -> None:
    cluster = create("one", settings=settings)
    assert cluster.directory is not None
    for pid in running(cluster.directory):
        os.kill(pid, signal.SIGKILL)
    with subprocess.Popen(["sleep", "60"]) as innocent:
        for file in (cluster.directory / "pids").iterdir():
            file.write_text(str(innocent.pid), encoding="ascii")
        with pytest.raises(ClusterError, match="etcd: it does not run"):
            cluster.pid("etcd")
        again = create("one", settings=settings, reuse=True)
        assert again.pid("etcd") != innocent.pid
        assert innocent.poll() is None
        innocent.kill()


def test_a_process_is_seen_from_its_first_instant(tmp_path: Path) -> None:
    for _ in range(50):
        command = [str(tmp_path / "etcd"), "-Sc", "import time; time.sleep(60)"]
        with subprocess.Popen(command, executable=sys.executable) as process:
            seen = list(running(tmp_path))
            process.kill()
        assert seen == [process.pid]


def test_a_killed_component_is_started_again(settings: Settings) -> None:
    cluster = create("one", settings=settings)
    etcd, kwok = cluster.pid("etcd"), cluster.pid("kwok-controller")
    os.kill(kwok, signal.SIGKILL)
    revive(cluster, settings=settings)
    assert cluster.pid("etcd") == etcd
    assert cluster.pid("kwok-controller") != kwok
    assert cluster.dead() == []


def test_two_clusters_at_once(settings: Settings) -> None:
    one, two = create("one", settings=settings), create("two", settings=settings)
    delete("one", settings=settings)
    assert two.pid("etcd")
    with pytest.raises(ClusterError, match="does not run in cluster one"):
        one.pid("etcd")


def test_deletion_leaves_nothing(settings: Settings) -> None:
    cluster = create("one", settings=settings)
    assert cluster.directory is not None
    os.kill(cluster.pid("etcd"), signal.SIGSTOP)
    delete("one", settings=settings)
    assert running(cluster.directory) == {}
    assert names(settings=settings) == []
    left = [path.name for path in settings.cache.rglob("*") if path.is_file()]
    assert left == ["clusters.lock"]
    delete("one", settings=settings)


def test_kwokctl_fails(settings: Settings) -> None:
    with pytest.raises(ClusterError) as caught:
        create("one", settings=settings, extra_args=["fail"])
    summary, complaint, log = str(caught.value).splitlines()
    assert summary == "running kwokctl create cluster one: it failed"
    assert complaint == "  Execute exit: bad flag"
    assert log.strip().startswith(f"the whole log: {settings.cache / 'logs'}")


def test_a_component_ends(settings: Settings) -> None:
    with pytest.raises(ClusterError, match=r"etcd ended \(a port is taken by another process\)"):
        create("one", settings=settings, extra_args=["--break=etcd"])
    cluster = get("one", settings=settings)
    assert running(cluster.directory or Path()) == {}
    assert cluster.log("etcd").is_file()


def test_a_component_that_gave_up_waiting_has_a_second_try(settings: Settings) -> None:
    cluster = create("one", settings=settings, extra_args=["--late=etcd"])
    assert not cluster.dead()
    with pytest.raises(ClusterError, match="etcd ended"):
        create("two", settings=settings, extra_args=["--late=etcd", "--break=etcd"])


def test_no_such_cluster(settings: Settings) -> None:
    with pytest.raises(ClusterError, match="finding cluster one: there is none"):
        get("one", settings=settings)


def test_bad_names(settings: Settings) -> None:
    for name in ("", "Upper", "a/b", "..", "-a", "a-", "a" * 41):
        for action in (create, delete, get):
            with pytest.raises(ControlPlaneError, match="naming a cluster"):
                action(name, settings=settings)


def test_a_borrowed_cluster(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "theirs.yaml"
    kubeconfig.write_text("theirs", encoding="utf-8")
    kubectl = tool(tmp_path / "path", "kubectl", "1.2.3")
    settings = settings_for(
        tmp_path, kubectl.parent, environ={"KWOK_OPERATOR_TEST_KUBECONFIG": str(kubeconfig)}
    )
    cluster = create("one", settings=settings)
    assert (cluster.kubeconfig, cluster.kubectl) == (kubeconfig, kubectl)
    assert cluster.borrowed
    assert cluster.dead() == []
    for action in (cluster.pid, cluster.log):
        with pytest.raises(ClusterError, match="not run by us"):
            action("etcd")
    with pytest.raises(ClusterError, match="not run by us"):
        revive(cluster, settings=settings)
    assert get("one", settings=settings) == cluster
    delete("one", settings=settings)
    assert kubeconfig.read_text(encoding="utf-8") == "theirs"
    assert not settings.cache.exists()


def test_a_borrowed_cluster_that_is_not_there(tmp_path: Path) -> None:
    settings = dataclasses.replace(
        settings_for(tmp_path), borrowed_kubeconfig=tmp_path / "absent.yaml"
    )
    with pytest.raises(ClusterError, match=r"KWOK_OPERATOR_TEST_KUBECONFIG: .*absent\.yaml"):
        create(settings=settings)
