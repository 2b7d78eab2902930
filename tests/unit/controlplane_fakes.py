"""Stand-ins for what kwok_operator.controlplane finds, downloads, builds and runs: small scripts.

`tool` writes a program that reports a version; `go` writes a toolchain whose builds are such
programs; `kwokctl` one that starts and ends processes as the real one does. `settings_for` gives a
machine that has only what the test put there: no release site answers, unless the test runs one.
"""

import contextlib
import io
import os
import socket
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kwok_operator.controlplane.settings import SETS_DIRECTORY, Settings
from kwok_operator.controlplane.toolsets import ToolSet, load
from kwok_operator.reporter import Reporter

KUBERNETES = "1.36"
SETS: dict[str, ToolSet] = {
    toolset.name.split("-")[0]: toolset
    for toolset in load(sets_directory=SETS_DIRECTORY, kubernetes_version=KUBERNETES)
}
TOOLS = [tool for toolset in SETS.values() for tool in toolset.tools]


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(body)}", encoding="utf-8")
    path.chmod(0o755)
    return path


def tool_text(version: str, *, name: str = "some tool") -> str:
    """A program as the real ones: it knows `--version`, kubectl only `version --client`."""
    question = "version --client" if name == "kubectl" else "--version"
    return f'#!/bin/sh\n[ "$*" = "{question}" ] && echo "{name} version v{version} (go1.99.0)"\n'


def tool(directory: Path, name: str, version: str) -> Path:
    path = script(directory / name, "")
    path.write_text(tool_text(version, name=name), encoding="utf-8")
    return path


def all_tools(directory: Path, *, leave_out: Sequence[str] = ()) -> Path:
    """Every tool, in the version that is wanted."""
    for toolset in SETS.values():
        for name in toolset.tools:
            if name not in leave_out:
                tool(directory, name, toolset.version)
    return directory


def go(directory: Path, *, version: str = "1.99.0", before_build: str = "true") -> Path:
    """A toolchain whose builds make tools with the right versions, after a command of the test."""
    builds = []
    for toolset in SETS.values():
        for name in toolset.tools:
            built = toolset.family.built_as or name
            text = tool_text(toolset.version, name=name)
            line = f'cat > "$out/{built}" <<"END"\n{text}END\nchmod +x "$out/{built}"'
            builds.append(f'case "$PWD" in */{toolset.name})\n{line}\n;; esac')
    return script(
        directory / "go",
        f'case "$1" in version) echo "go version go{version} linux/amd64"; exit;; esac\n'
        'case "$1" in list) echo one; echo two; exit;; esac\n'
        'while [ "$1" != -o ]; do shift; done; out=$2\n'
        f"{before_build}\n" + "\n".join(builds),
    )


KWOKCTL = f"""\
#!{sys.executable} -SE
import os, pathlib, subprocess, sys, time
args = sys.argv[1:]
if args == ["--version"]:
    sys.exit(print("kwokctl version v{SETS["kwok"].version}"))
if args[:2] == ["get", "artifacts"]:
    sys.exit()
option = lambda name: args[args.index("--" + name) + 1]
directory = pathlib.Path(os.environ["KWOK_WORKDIR"], "clusters", option("name"))
with open(os.environ["FAKE_LOG"], "a") as log:
    print(*args, file=log)
with open(os.environ["FAKE_LOG"] + "-options", "w") as log:
    print(*sorted(name for name in os.environ if name.startswith("KWOK_")), file=log)
if args[0] == "create":
    config = pathlib.Path(option("config")).read_text()
    if "fail" in args:
        print('{{"level":"INFO","msg":"Cluster is creating"}}')
        sys.exit('{{"level":"ERROR","msg":"Execute exit","err":"bad flag"}}')
    directory.mkdir(parents=True)
    own = ["kind: Stage\\nmetadata: {{name: " + name + "}}" for name in ("node", "pod")]
    begun = any(arg.startswith("--enable-crds") for arg in args)
    saved = ["kind: KwokctlConfiguration", *([] if begun else own), "kind: KwokConfiguration"]
    (directory / "pki").mkdir()
    (directory / "kwok.yaml").touch()
    if "--slowly" in args:
        time.sleep(0.3)
    (directory / "kwok.yaml").write_text("\\n---\\n".join(saved))
    pathlib.Path(option("kubeconfig")).write_text(config)
if args[0] in ("create", "start"):
    for part in ("pids", "logs", "bin"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    for component in ("etcd", "kwok-controller"):
        pid = directory / "pids" / (component + ".pid")
        if pid.exists():
            continue
        log = directory / "logs" / (component + ".log")
        log.write_text("listen: address already in use")
        late = int("--late=" + component in args)
        if late and open(os.environ["FAKE_LOG"]).read().count("create cluster") <= late:
            log.write_text("failed to wait for apiserver being healthy: timed out")
            args.append("--break=" + component)
        code = "import time; time.sleep(60)"
        if "--break=" + component in args:
            code = "0"
        command = [str(directory / "bin" / component), "-Sc", code]
        process = subprocess.Popen(command, executable=sys.executable, start_new_session=True)
        if code == "0":
            process.wait()
        pid.write_text(str(process.pid))
        process.returncode = 0
    if "--hang" in args:
        # As the program that it was started as, and not as Python with a script.
        os.execv(sys.executable, [sys.argv[0], "-Sc", "import time; time.sleep(60)"])
"""


def kwokctl(directory: Path) -> Path:
    path = script(directory / "kwokctl", "")
    path.write_text(KWOKCTL, encoding="utf-8")
    return path


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port where connections are refused, for as long as it is held."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def settings_for(
    tmp_path: Path,
    *path: Path,
    site: str = "http://127.0.0.1:1",
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """A machine with these directories on PATH, an empty cache, and one release site."""
    return Settings.from_environ(
        {
            "HOME": str(tmp_path / "home"),
            "KWOK_OPERATOR_CACHE": str(tmp_path / "cache"),
            "KUBERNETES_VERSION": KUBERNETES,
            "KWOK_BINARY_PREFIX": site,
            "PATH": os.pathsep.join([*map(str, path), "/usr/bin", "/bin"]),
            "PIP_NO_INDEX": "1",
            "no_proxy": "*",
            **(environ or {}),
        }
    )


_KUBECTL = """\
[ "$1 $2" = "version --client" ] && echo v1.36.3 && exit
case "$*" in *apply*) echo "$*" >> {silent}-applied;; esac
test ! -e {silent} || {{ rm {silent}; exit 1; }}
"""


def machine(tmp_path: Path) -> Settings:
    """One that can make clusters.

    kubectl fails once if there is a file `silent`. FAKE_LOG has the calls of kwokctl.
    """
    path = all_tools(tmp_path / "path")
    kwokctl(path)
    script(path / "kubectl", _KUBECTL.format(silent=tmp_path / "silent"))
    log = tmp_path / "kwokctl-calls"
    log.touch()
    return settings_for(tmp_path, path, environ={"FAKE_LOG": str(log), "KWOK_RUNTIME": "kind"})


def quiet() -> tuple[Reporter, io.StringIO]:
    """A reporter and what it says."""
    stream = io.StringIO()
    return Reporter(stream), stream
