"""Runs a command as a container would, with the kernel's means alone: no container engine.

    python -m hack.image.sandbox < request.json

The command sees a root directory of its own, made of what the request binds there and of nothing
else: neither a shell nor any other program of this machine. All of it is read-only but for what the
request says. It runs as the given user, without capabilities, and can't gain any.

Root is not needed where the kernel lets everybody have a user namespace (`available` tells); the
user of the command is then that number inside, and whoever started it outside. Networks and
processes are those of this machine, so that the command finds its API server.
"""

import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUSER: Final = 0x10000000
_MS_RDONLY: Final = 0x1
_MS_NOSUID_NODEV_NOEXEC: Final = 0x2 | 0x4 | 0x8
_MS_REMOUNT: Final = 0x20
_MS_NOATIMES: Final = 0x400 | 0x800
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 0x40000
_MS_RELATIME: Final = 0x200000
_ST_RELATIME: Final = 0x1000
_PR_SET_NO_NEW_PRIVS: Final = 38


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and what is there."""

    command: Sequence[str]
    environ: Mapping[str, str]
    root: str
    """An empty directory, on which the root is mounted."""
    read_only: Mapping[str, str]
    """Files and directories of this machine, by their path inside."""
    writable: Mapping[str, str] = field(default_factory=dict)
    user: int = 65532


def available() -> bool:
    """Whether this user may make mount namespaces, as root or in a user namespace of its own."""
    child = os.fork()
    if child == 0:
        try:
            _enter_namespaces()
            _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def system_directories(python_prefix: str) -> dict[str, str]:
    """What a Python of this machine needs to start: itself and shared libraries, no programs."""
    wanted = [python_prefix, "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache"]
    found = [path for path in wanted if Path(path).exists()]
    devices = ["/dev/null", "/dev/urandom"]
    return {path: path for path in [*found, *devices, "/proc"]}


def run(request: Request) -> None:
    """Becomes the command; does not return. Raises OSError where the kernel says no."""
    _enter_namespaces()
    _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    _mount("tmpfs", request.root, kind="tmpfs", data="mode=755")
    for inside, outside in sorted({**request.read_only, **request.writable}.items()):
        _bind(outside, request.root + inside, writable=inside in request.writable)
    _mount("none", request.root, flags=_MS_REMOUNT | _MS_BIND | _MS_RDONLY)
    _become(request.user, root=request.root)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "giving up privileges")
    os.execvpe(request.command[0], list(request.command), dict(request.environ))


def _enter_namespaces() -> None:
    if os.geteuid() == 0:
        _check(_libc.unshare(_CLONE_NEWNS), "making a mount namespace")
        return
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "making a user and a mount namespace")
    _map(user=f"0 {user} 1", group=f"0 {group} 1")


def _become(user: int, *, root: str) -> None:
    """Leaves the machine's root directory, and the rights of whoever came here."""
    if Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]:
        os.chroot(root)
        os.chdir("/")
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        return
    _check(_libc.unshare(_CLONE_NEWUSER), "making a second user namespace")
    _map(user=f"{user} 0 1", group=f"{user} 0 1")
    os.chroot(root)
    os.chdir("/")


def _map(*, user: str, group: str) -> None:
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(user)
    (own / "gid_map").write_text(group)


def _bind(outside: str, inside: str, *, writable: bool) -> None:
    if os.path.isdir(outside):
        os.makedirs(inside, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        Path(inside).touch()
    _mount(outside, inside, flags=_MS_BIND | _MS_REC)
    if not writable and not outside.startswith(("/proc", "/dev")):
        # What a mount already forbids has to be said again: it can't be allowed anew.
        known = os.statvfs(outside).f_flag
        kept = known & (_MS_NOSUID_NODEV_NOEXEC | _MS_NOATIMES)
        kept |= _MS_RELATIME if known & _ST_RELATIME else 0
        _mount("none", inside, flags=_MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)


def _mount(source: str, target: str, *, kind: str = "", flags: int = 0, data: str = "") -> None:
    code = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None
    )
    _check(code, f"mounting {source} on {target}")


def _check(code: int, doing: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


def encode(request: Request) -> str:
    """A request as this module reads it from standard input."""
    return json.dumps(asdict(request))


if __name__ == "__main__":
    run(Request(**json.load(sys.stdin)))
