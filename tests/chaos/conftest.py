"""One cluster for all scenarios, with a watcher that keeps the ledger from the first to the last.

    CHAOS_SEED=7      what is drawn; a run without it draws one, and says which
    CHAOS_FULL=1      full length, as `make chaos` runs it
    CHAOS_MINUTES=30  how long clients are at work at random, at full length

A test that fails says how to repeat it.
"""

import dataclasses
import itertools
import os
import random
import re
from collections.abc import Generator, Iterator

import pytest

from tests.chaos.faults import Faults
from tests.chaos.invariants import Ledger
from tests.chaos.plans import FULL, SMALL, Scope, chance
from tests.chaos.watcher import Watcher
from tests.chaos.wire import Wire
from tests.chaos.world import World
from tests.e2e.api import Api
from tests.e2e.own_cluster import OwnCluster, own_cluster

SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(2**32))
os.environ["CHAOS_SEED"] = str(SEED)  # for the other processes of a run
_NUMBERS = itertools.count(1)
FULL_LENGTH = bool(os.environ.get("CHAOS_FULL"))


def pytest_report_header() -> str:
    return f"chaos: CHAOS_SEED={SEED} ({'full' if FULL_LENGTH else 'small'} size)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Where all tests are run, the header is out before this file is read.
    terminalreporter.write_line(pytest_report_header())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        name = item.name.partition("[")[0]
        command = f"make chaos CHAOS_SEED={SEED} CHAOS_ARGS='-k {name}'"
        if not FULL_LENGTH:
            command = f"CHAOS_SEED={SEED} .venv/bin/python -m pytest {item.nodeid}"
        report.sections.append(("to repeat it", command))
    return report


@pytest.fixture(scope="package")
def scope() -> Scope:
    """How large everything is."""
    if not FULL_LENGTH:
        return SMALL
    minutes = float(os.environ.get("CHAOS_MINUTES") or FULL.minutes)
    return dataclasses.replace(FULL, minutes=minutes)


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    """The test's own chance."""
    return chance(SEED, request.node.name)


@pytest.fixture(scope="package")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    with own_cluster("chaos", directory=tmp_path_factory.mktemp("chaos")) as own:
        yield own


@pytest.fixture(scope="package")
def api(own: OwnCluster) -> Api:
    """The cluster's admin."""
    return own.kubectl.api


@pytest.fixture(scope="package")
def watcher(api: Api) -> Iterator[Watcher]:
    """Watches all nodes until the last test has ended."""
    with Watcher(api, Ledger()) as watcher:
        yield watcher


@pytest.fixture(scope="package")
def wire(api: Api, own: OwnCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """Between the operator and the API server, for those who want it there."""
    assert own.cluster.directory is not None
    wire = Wire(
        server=api.server,
        ca=own.cluster.directory / "pki" / "ca.crt",
        directory=tmp_path_factory.mktemp("wire") / "certificates",
        draw=chance(SEED, "wire"),
    )
    yield wire
    wire.close()


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    own: OwnCluster,
    api: Api,
    watcher: Watcher,
    wire: Wire,
    scope: Scope,
    draw: random.Random,
) -> Iterator[World]:
    """The cluster as one test sees it, with nothing wrong yet."""
    watcher.ledger.violations.clear()
    slug = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"{slug[:16].strip('-')}-{next(_NUMBERS)}"
    world = World(
        api=api,
        ledger=watcher.ledger,
        faults=Faults(own, api),
        harness=own.harness,
        wire=wire,
        scope=scope,
        draw=draw,
        name=name,
    )
    yield world
    world.close()
    watcher.check()
