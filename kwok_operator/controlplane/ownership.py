"""Clusters that are removed when the program that made them ends, and clusters that stay for the
next program.

    temporary: remove clusters without an owner -> own a name -> create -> run the block -> remove

An owner holds the lock `clusters/<name>.owner`, which the kernel releases when the owner ends,
however that happens. So a cluster whose lock is free has no owner, and the next program that makes
a cluster removes it. If the block of `temporary` starts programs in the cluster, it must also end
them.

A cluster that stays has a name with a number, and the mark `clusters/<name>.stays`, without which
it is somebody else's. Its user holds the lock `clusters/<name>.used`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypedDict, Unpack

from filelock import Timeout

from kwok_operator.controlplane.cluster import Cluster
from kwok_operator.controlplane.errors import ClusterError, ControlPlaneError
from kwok_operator.controlplane.kwokctl import Flags
from kwok_operator.controlplane.lifecycle import (
    checked_name,
    create,
    creating,
    names,
    owner_lock,
    remove,
    stays_mark,
    user_lock,
)
from kwok_operator.controlplane.lock import hold
from kwok_operator.controlplane.processes import interrupts_deferred
from kwok_operator.controlplane.settings import Settings
from kwok_operator.controlplane.stopping import in_thread
from kwok_operator.reporter import Reporter


class Choices(TypedDict, total=False):
    """The options of a cluster; see `create`."""

    manage_all_nodes: bool
    raised_limits: bool
    stages: bool
    flags: Flags
    extra_args: Sequence[str]


@contextlib.contextmanager
def temporary(
    prefix: str,
    *,
    keep: bool = False,
    numbered: bool = True,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
    **choices: Unpack[Choices],
) -> Iterator[Cluster]:
    """Create a cluster for the length of the block. Its name begins with `prefix`; without
    `numbered`, its name is `prefix`, and it replaces an older cluster of that name.

    It is removed however the block ends, also by an interrupt, unless `keep` is set. If the cluster
    doesn't start, its logs stay until the next one is made. It is always a new cluster: the
    variable that names a borrowed one is ignored here.
    """
    settings = settings or Settings.from_environ(os.environ)
    settings = dataclasses.replace(settings, borrowed_kubeconfig=None)
    reporter = reporter or Reporter(sys.stderr)
    name = checked_name(f"{prefix}-{secrets.token_hex(3)}" if numbered else prefix)
    with _own(name, settings=settings, reporter=reporter):
        try:
            cluster = create(name, settings=settings, reporter=reporter, **choices)
        except ControlPlaneError:
            if name not in names(settings=settings):
                _remove(name, settings=settings)
            raise
        except BaseException:
            _remove(name, settings=settings)
            raise
        try:
            yield cluster
        finally:
            if keep:
                owner_lock(name, settings=settings).unlink(missing_ok=True)
            else:
                _remove(name, settings=settings)


@contextlib.asynccontextmanager
async def async_temporary(
    prefix: str,
    *,
    keep: bool = False,
    numbered: bool = True,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
    **choices: Unpack[Choices],
) -> AsyncIterator[Cluster]:
    """`temporary` for an event loop, which isn't blocked meanwhile. Cancelling the task works like
    an interrupt."""
    making = temporary(
        prefix, keep=keep, numbered=numbered, settings=settings, reporter=reporter, **choices
    )
    cluster = await in_thread(making.__enter__, undo=lambda _: making.__exit__(None, None, None))
    try:
        yield cluster
    finally:
        making.__exit__(None, None, None)


@contextlib.contextmanager
def free_name(prefix: str, *, settings: Settings) -> Iterator[str]:
    """Yield the first of the names `prefix`-1, `prefix`-2, ... that no other program uses, and that
    no cluster has but those made with `create(stays=True)`. During the block the name's lock is
    held, so that other programs take other names."""
    with contextlib.ExitStack() as stack:
        for number in itertools.count(1):
            name = f"{prefix}-{number}"
            mark = stays_mark(name, settings=settings)
            try:
                if name in names(settings=settings) and not mark.exists():
                    continue
                stack.enter_context(hold(user_lock(name, settings=settings)))
                break
            except Timeout:
                continue
            except OSError as err:
                raise ClusterError(f"creating cluster {name}: {err}; {settings.elsewhere}") from err
        yield name


def remove_unused(prefix: str, *, settings: Settings) -> tuple[list[str], list[str]]:
    """Remove the clusters of `free_name` that no program uses, and their locks. Return their names,
    and the names of those in use."""
    removed, used = [], []
    mine = [f(f"{prefix}-*", settings=settings) for f in (stays_mark, user_lock)]
    for name in sorted({path.stem for each in mine for path in each.parent.glob(each.name)}):
        lock = user_lock(name, settings=settings)
        try:
            with hold(lock):
                if stays_mark(name, settings=settings).exists():
                    _remove(name, settings=settings)
                    removed.append(name)
                # Another program may have opened the file already. FileLock refuses it, as it is
                # gone.
                lock.unlink(missing_ok=True)
        except Timeout:
            if lock.exists():  # else another program has just removed the cluster
                used.append(name)
    return removed, used


def _own(
    name: str, *, settings: Settings, reporter: Reporter
) -> contextlib.AbstractContextManager[object]:
    locks = owner_lock("*", settings=settings)
    try:
        # Only one process at a time tries these locks, so a lock that is held is held by an owner.
        with creating(name, settings=settings, reporter=reporter):
            for path in sorted(locks.parent.glob(locks.name)):
                with contextlib.suppress(Timeout), hold(path):
                    left = path.stem
                    reporter.say(f"removing cluster {left}: the program that made it has ended")
                    try:
                        _remove(left, settings=settings)
                    except ClusterError as err:
                        reporter.say(str(err))
            return hold(owner_lock(name, settings=settings))
    except OSError as err:
        raise ClusterError(f"creating cluster {name}: {err}; {settings.elsewhere}") from err


def _remove(name: str, *, settings: Settings) -> None:
    with interrupts_deferred():
        try:
            remove(name, settings=settings)
        except OSError as err:
            raise ClusterError(f"deleting cluster {name}: {err}") from err
        owner_lock(name, settings=settings).unlink(missing_ok=True)
