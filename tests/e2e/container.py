"""The image, made and run without a container engine: as the Dockerfile and the manifests say.

`build_image` carries out what the Dockerfile's first stage says. `Container` runs a container of a
rendered Deployment: its arguments, variables, user, volumes and ports, on a read-only root in which
nothing else is, with a service account's three files as its only way into the cluster. What is
checked about it is for the tests to say.

Where the kernel lets nobody make a mount namespace, `Container` comes as near as it can: the same
command with nothing but a kubeconfig, as the user who tests.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hack.image.dockerfile import Instruction, read_stages
from hack.image.sandbox import Request, available, encode, system_directories
from tests.e2e.kubectl import PATIENCE, Kubectl, eventually
from tests.e2e.ports import free_port

ROOT = Path(__file__).parents[2]
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
MIB = 2**20
_UNITS = {"Ki": 2**10, "Mi": MIB, "Gi": 2**30}


@dataclass(frozen=True)
class Image:
    """What the Dockerfile makes: an environment, and how it is started."""

    environment: Path
    destination: str
    """Where it is in the image."""
    entrypoint: str
    prefix: Path
    """The Python that it was made of."""

    def command(self, place: str, arguments: list[str]) -> list[str]:
        """The entry point in an environment at this place."""
        return [f"{place}/bin/python", f"{place}/bin/{self.entrypoint}", *arguments]


def build_image(directory: Path) -> Image:
    """Copies and runs what the Dockerfile copies and runs."""
    build, final = read_stages((ROOT / "Dockerfile").read_text())
    source, environment = directory / "source", directory / "environment"
    source.mkdir()
    for copied in build.all("COPY"):
        _copy(copied, source)
    (step,) = build.all("RUN")
    *command, destination = step.words()
    python = _python(build.base)
    prefix = subprocess.run(
        [python, "-c", "import sys; print(sys.base_prefix)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    done = subprocess.run(
        [*command, str(environment)],
        cwd=source,
        env={**_without_virtual_environment(), "PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{step.text} ended with {done.returncode}:\n{done.stderr}"
    (entrypoint,) = final.last("ENTRYPOINT").words()
    return Image(environment, destination, entrypoint, Path(prefix))


def _copy(copied: Instruction, source: Path) -> None:
    *paths, target = copied.words()
    for path in paths:
        if (ROOT / path).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / path, source / target, ignore=ignored)
        else:
            (source / target).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, source / target)


def _python(base: str) -> str:
    """The image's minor version where this machine has it, else the one that runs the tests."""
    minor = ".".join(base.partition(":")[2].split(".")[:2])
    found = shutil.which(f"python{minor}")
    if (
        found
        and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0
    ):
        return found
    return str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")


def _without_virtual_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}


class Container:
    """One run of one container of a pod."""

    def __init__(
        self,
        image: Image,
        *,
        pod: Mapping[str, Any],
        name: str,
        namespace: str,
        kubectl: Kubectl,
        directory: Path,
    ) -> None:
        everything = [*pod.get("initContainers", ()), *pod["containers"]]
        (spec,) = [each for each in everything if each["name"] == name]
        self.spec: Mapping[str, Any] = spec
        self.sandboxed = available()
        self.user: int = pod["securityContext"]["runAsUser"]
        self.volumes = _volumes(pod, spec, directory, self.user)
        (self._port,) = [port["containerPort"] for port in spec["ports"]]
        # In a pod the port is its own; on this machine it may be somebody else's.
        self.port = free_port()
        self._log = directory / "log"
        arguments = [arg.replace(f":{self._port}", f":{self.port}") for arg in spec["args"]]
        config = kubectl.json("config", "view", "--raw", "--minify", "--flatten")
        token = kubectl("create", "token", pod["serviceAccountName"], f"--namespace={namespace}")
        account = _account(directory, config, token, namespace)
        environ = _environ(spec, pod_name=f"{name}-0", namespace=namespace)
        if self.sandboxed:
            server = urlsplit(config["clusters"][0]["cluster"]["server"])
            environ["KUBERNETES_SERVICE_HOST"] = str(server.hostname)
            environ["KUBERNETES_SERVICE_PORT"] = str(server.port)
            environ["PATH"] = f"{image.destination}/bin"
            outside = {image.destination: str(image.environment), SERVICE_ACCOUNT: str(account)}
            root = directory / "root"
            root.mkdir()
            request = Request(
                command=image.command(image.destination, arguments),
                environ=environ,
                root=str(root),
                read_only={**system_directories(str(image.prefix)), **outside},
                writable=self.volumes,
                user=self.user,
            )
            self._popen = self._start([sys.executable, "-m", "hack.image.sandbox"])
            assert self._popen.stdin is not None
            self._popen.stdin.write(encode(request).encode())
            self._popen.stdin.close()
        else:
            for inside, outside_path in self.volumes.items():
                arguments = [arg.replace(inside, outside_path) for arg in arguments]
            kubeconfig = directory / "kubeconfig"
            config["users"] = [
                {"name": config["users"][0]["name"], "user": {"token": token.strip()}}
            ]
            kubeconfig.write_text(json.dumps(config))
            environ |= {"KUBECONFIG": str(kubeconfig)}
            self._popen = self._start(image.command(str(image.environment), arguments), environ)

    def _start(
        self, command: list[str], environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with self._log.open("w") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self) -> str:
        return self._log.read_text()

    def probe(self, kind: str) -> int:
        """The status of the answer that the kubelet would get; 0 without an answer."""
        probe = self.spec[kind]["httpGet"]
        (named,) = [port["name"] for port in self.spec["ports"]]
        assert probe["port"] in (named, self._port)
        try:
            url = f"http://127.0.0.1:{self.port}{probe['path']}"
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def wait_ready(self) -> None:
        def status() -> int:
            assert self._popen.poll() is None or self.fail()
            return self.probe("readinessProbe")

        eventually(status, lambda found: found == 200, describe="it is ready")

    def fail(self) -> bool:
        raise RuntimeError(f"the container has ended with {self._popen.returncode}:\n{self.log()}")

    def users(self) -> set[int]:
        """All user ids that the process has."""
        return {int(number) for number in self._status("Uid").split()}

    def peak_memory(self) -> int:
        """Bytes of resident memory at most so far."""
        return int(self._status("VmHWM").split()[0]) * 1024

    def capabilities(self) -> int:
        return int(self._status("CapEff"), 16) | int(self._status("CapPrm"), 16)

    def _status(self, key: str) -> str:
        lines = Path(f"/proc/{self._popen.pid}/status").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{key}:"))

    def limit(self, resource: str) -> int:
        """A limit on memory, in bytes."""
        text = self.spec["resources"]["limits"][resource]
        return int(text[:-2]) * _UNITS[text[-2:]]

    def terminate(self) -> int:
        """SIGTERM, as the kubelet ends a pod; the exit code."""
        self._popen.send_signal(signal.SIGTERM)
        return self._popen.wait(PATIENCE)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()


def _volumes(
    pod: Mapping[str, Any], spec: Mapping[str, Any], directory: Path, user: int
) -> dict[str, str]:
    """A directory of this machine for each emptyDir, by its path inside."""
    empty = {volume["name"] for volume in pod.get("volumes", ()) if "emptyDir" in volume}
    mounts = spec.get("volumeMounts", ())
    assert {mount["name"] for mount in mounts} <= empty, "only these are known here"
    made = {}
    for mount in mounts:
        outside = directory / mount["name"]
        outside.mkdir()
        if os.geteuid() == 0:
            os.chown(outside, user, user)
        made[mount["mountPath"]] = str(outside)
    return made


def _account(directory: Path, config: Mapping[str, Any], token: str, namespace: str) -> Path:
    """The files that the kubelet puts into a pod."""
    account = directory / "account"
    account.mkdir(mode=0o755)
    ca = config["clusters"][0]["cluster"]["certificate-authority-data"]
    (account / "ca.crt").write_bytes(base64.b64decode(ca))
    (account / "token").write_text(token.strip())
    (account / "namespace").write_text(namespace)
    return account


def _environ(spec: Mapping[str, Any], *, pod_name: str, namespace: str) -> dict[str, str]:
    fields = {"metadata.name": pod_name, "metadata.namespace": namespace}
    environ = {}
    for entry in spec.get("env", ()):
        source = entry.get("valueFrom")
        environ[entry["name"]] = (
            fields[source["fieldRef"]["fieldPath"]] if source else entry.get("value", "")
        )
    return environ
