"""The fixtures, which pytest finds in every environment that has this distribution.

Tests that use no fixture of this module lose no time: it imports only pytest until a fixture is
used.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    from kwok_operator.testkit.cluster import KwokCluster
    from kwok_operator.testkit.groups import Groups
    from kwok_operator.testkit.rehearsed import Rehearsed

_NONE: Final = "no control plane: "


class Rehearse(Protocol):
    """The function that the fixture `rehearse` provides."""

    def __call__(
        self,
        scenario: str | Path,
        *,
        binaries: Mapping[str, str | Path] | None = None,
        arm: str | None = None,
    ) -> "Rehearsed": ...


def _none(why: str) -> BaseException:
    return pytest.fail.Exception(f"{_NONE}{why}", pytrace=False)


def pytest_exception_interact(call: pytest.CallInfo[Any]) -> None:
    # Each test that needs a cluster fails with the same error; only the first shows it in full.
    error = call.excinfo and call.excinfo.value
    if isinstance(error, pytest.fail.Exception) and str(error.msg).startswith(_NONE):
        error.msg = f"{_NONE}the first error of this kind says why"


@pytest.fixture(scope="session")
def _kwok_tools(request: pytest.FixtureRequest) -> None:
    """Makes sure that etcd, Kubernetes and kwok are available; reports downloads and builds."""
    from kwok_operator.controlplane import ControlPlaneError, Reporter, Settings, find_tools

    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        try:
            find_tools(Settings.from_environ(os.environ), reporter=Reporter(sys.stderr))
        except ControlPlaneError as error:
            raise _none(str(error)) from None


@pytest.fixture(scope="session")
def kwok_cluster(
    _kwok_tools: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["KwokCluster"]:
    """A Kubernetes control plane with kwok and the operator, shared by the tests of this process
    only.
    """
    from kwok_operator.testkit.cluster import HostError, hosted

    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(hosted(tmp_path_factory.mktemp("kwok-cluster")))
        except HostError as error:
            raise _none(str(error)) from None
        yield cluster


@pytest.fixture
def kwok_groups(kwok_cluster: "KwokCluster") -> Iterator["Groups"]:
    """Makes groups of nodes: `kwok_groups({"general": 3})`. They are deleted after the test."""
    from kwok_operator.testkit.groups import Groups

    groups = Groups(kwok_cluster)
    yield groups
    groups.clear()


@pytest.fixture
def rehearse(
    _kwok_tools: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Rehearse:
    """Plays a scenario: `assert rehearse("scenario.yaml").passed`. Paths are relative to the test's
    file.
    """
    from kwok_operator.testkit import rehearsed

    def play(
        scenario: str | Path,
        *,
        binaries: Mapping[str, str | Path] | None = None,
        arm: str | None = None,
    ) -> "Rehearsed":
        __tracebackhide__ = True
        folder = tmp_path_factory.mktemp(f"rehearsal-{Path(scenario).stem}")
        cwd = request.path.parent
        try:
            return rehearsed.rehearse(
                scenario, folder=folder, cwd=cwd, binaries=binaries or {}, arm=arm
            )
        except rehearsed.RehearseError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    return play
