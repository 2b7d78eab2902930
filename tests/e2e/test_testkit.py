"""The fixtures for the tests of others, as pytest finds them: the project of docs/ci.md is run."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kwok_operator.controlplane import Settings, processes
from kwok_operator.controlplane.settings import CACHE_VARIABLE, PORTS_VARIABLE, VERSION_VARIABLE
from tests.e2e.kubectl import eventually
from tests.fakes.docs import files_of

FAILING: Final = '''
def test_too_much_is_expected(rehearse):
    assert rehearse("hard.yaml").passed


def test_the_scenario_is_wrong(rehearse):
    rehearse("wrong.yaml")


def test_there_is_no_such_arm(rehearse):
    rehearse("hard.yaml", arm="other")


def test_nodes_come_late(kwok_groups):
    kwok_groups("late: {targetSize: 1, cloud: {provisioningDelay: {fixed: 10m}}}", within=0.5)


async def test_nodes_of_others_are_not_seen(kwok_cluster, kwok_groups):
    """Those of the test before, and of other workers."""
    kwok_groups({"mine": 2})
    assert len(kwok_cluster.kubectl("get", "nodes", "--output=name").split()) == 2
'''
KILLED: Final = """
import os, pathlib, signal


def test_before(kwok_groups):
    kwok_groups({"general": 2})


def test_killed(kwok_cluster, kwok_groups):
    assert kwok_cluster.kubectl("get", "nodes", "--output=name") == ""
    kwok_groups({"general": 1})
    pathlib.Path("seen").write_text(kwok_cluster.kubectl("get", "nodes", "--output=name"))
    os.kill(os.getpid(), signal.SIGKILL)
"""
WANTING: Final = """
import pytest


@pytest.mark.parametrize("number", range(3))
def test_wanting(kwok_groups, number):
    pass


def test_that_wants_none():
    pass
"""


class Project:
    """A folder with tests, and a cache that has the tools, and clusters of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in files_of("ci.md").items():
            self.write(name, text)
        own = Settings.from_environ(os.environ).cache / "tools"
        self.cache = folder / "cache"
        self.cache.mkdir()
        (self.cache / "tools").symlink_to(own)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        # The lock that keeps two creations from the same ports is in the cache.
        environ.setdefault(PORTS_VARIABLE, "28000")
        mine = ["--asyncio-mode=auto", f"--basetemp={self.folder / 'temporary'}"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *mine, *flags],
            env={**environ, CACHE_VARIABLE: str(self.cache), **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def left(self) -> list[str]:
        """Clusters and programs that are still there."""
        clusters = [path.name for path in (self.cache / "clusters").glob("*/")]
        return clusters + [line.split()[0] for line in processes.running(self.folder).values()]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def counts(said: str) -> Mapping[str, int]:
    last = said.strip().splitlines()[-1]
    return {what: int(number) for number, what in re.findall(r"(\d+) ([a-z]+)", last)}


def test_the_project_of_the_docs_passes_and_leaves_nothing(project: Project) -> None:
    assert {"requirements.txt", "test_nodes.py", "scenario.yaml"} <= files_of("ci.md").keys()
    done = project.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts(done.stdout)["passed"] == 2
    assert project.left() == []


def test_tests_that_are_killed_leave_nothing(project: Project) -> None:
    project.write("test_nodes.py", KILLED)
    assert project.run().returncode == -signal.SIGKILL
    assert (project.folder / "seen").read_text().count("node/") == 1, "all was there"
    eventually(project.left, lambda left: not left, describe="all has ended")


def test_with_xdist_what_fails_says_why(project: Project) -> None:
    scenario = files_of("ci.md")["scenario.yaml"]
    project.write("hard.yaml", scenario.replace("equals: 10", "equals: 9"))
    project.write("wrong.yaml", scenario.replace("count: 10", "count: ten"))
    project.write("test_others.py", FAILING)
    done = project.run("-n2", "--deselect=test_nodes.py::test_pods_wait_little")
    assert done.returncode == 1, done.stdout + done.stderr
    assert counts(done.stdout) == {**counts(done.stdout), "passed": 2, "failed": 4}
    of = dict(re.findall(r"^_{3,} (\w+) _{3,}\n(.*?)(?=^[_=]{3,})", done.stdout, re.M | re.S))
    expected = "pods.running: exactly 9, at the end: 10, wanted exactly 9"
    assert f"where False = <hard FAILED: {expected}>.passed" in of["test_too_much_is_expected"]
    assert f"FAILED {expected}" in of["test_too_much_is_expected"]
    assert re.search(
        r"^wrong.yaml:\d+: workloads\[0\].count", of["test_the_scenario_is_wrong"], re.M
    )
    assert "--arm other" in of["test_there_is_no_such_arm"]
    late = of["test_nodes_come_late"]
    assert "late: " in late
    assert "kwok_operator/testkit" not in late
    assert project.left() == []


@pytest.mark.parametrize("missing", ["tools", "cluster"])
def test_that_there_is_no_control_plane_is_reported_once(project: Project, missing: str) -> None:
    given, why = {VERSION_VARIABLE: "1.2"}, "'1.2' is not known"
    if missing == "cluster":
        (project.cache / "clusters").touch()
        given, why = {}, CACHE_VARIABLE
    project.write("test_nodes.py", WANTING)
    done = project.run(**given)
    assert done.returncode == 1, done.stdout + done.stderr
    assert counts(done.stdout) == {**counts(done.stdout), "passed": 1, "errors": 3}
    said = done.stdout.partition("short test summary")[0]
    assert said.count(why) == 1
    assert said.count("the first error of this kind says why") == 2
    assert "Traceback" not in said
    assert "plugin.py" not in said
