"""What every e2e test stands on: a control plane, the CRDs in it, a name of its own.

The control plane comes from kwok_operator.controlplane, or KWOK_OPERATOR_TEST_KUBECONFIG names one.
Each process that runs tests makes one when its first test asks for it, and removes it after its
last e2e test, however that ends. A test that asks for `group_name` may create groups of that name,
and of names that begin with it and a hyphen; what it leaves is removed.

The operator itself is started by the fixtures of operator.py.
"""

import os
import random
import re
import secrets
from collections.abc import Generator, Iterator

import pytest

from kwok_operator.controlplane import Cluster, get, temporary
from kwok_operator.controlplane.settings import KUBECONFIG_VARIABLE
from tests.e2e.api import GROUPS
from tests.e2e.autoscaler import autoscaler, shim, shim_kubeconfig  # noqa: F401
from tests.e2e.groups import delete_group, install_crds
from tests.e2e.kubectl import Kubectl
from tests.e2e.operator import (
    Harness,
    _harness,  # noqa: F401
    harness,  # noqa: F401
    operator,  # noqa: F401
    operator_kubeconfig,  # noqa: F401
)
from tests.e2e.own_cluster import OwnCluster
from tests.e2e.rehearsals import own_cache  # noqa: F401
from tests.e2e.secrets import secret  # noqa: F401
from tests.e2e.sources import provider, real_nodes  # noqa: F401

LINES_SHOWN = 60


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing test shows what the operators said that it had."""
    report = yield
    if report.failed:
        given = [*getattr(item, "funcargs", {}).values()]
        given += [each.harness for each in given if isinstance(each, OwnCluster)]
        for process in {each.process for each in given if isinstance(each, Harness)}:
            if process is None:
                continue
            state = "runs" if process.running else "has ended"
            log = "\n".join(process.log().splitlines()[-LINES_SHOWN:])
            report.sections.append((f"log of an operator that {state}", log))
    return report


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    if os.environ.get(KUBECONFIG_VARIABLE):
        yield get()
        return
    with temporary("e2e") as cluster:
        yield cluster


@pytest.fixture(scope="package")
def kubectl(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(
        program=cluster.kubectl,
        kubeconfig=cluster.kubeconfig,
        cache=tmp_path_factory.mktemp("kubectl-cache"),
    )


@pytest.fixture(scope="package")
def crds(kubectl: Kubectl) -> None:
    """The CRDs of this checkout are served, and kubectl knows them."""
    install_crds(kubectl)


@pytest.fixture
def group_name(request: pytest.FixtureRequest, kubectl: Kubectl, crds: None) -> Iterator[str]:
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"{slug[:20].strip('-')}-{secrets.token_hex(3)}"
    yield name
    for left in kubectl.api.names(GROUPS):
        if f"{left}-".startswith(f"{name}-"):
            delete_group(kubectl, left)


@pytest.fixture
def chance() -> random.Random:
    """Instants to kill at; a failing test prints the seed that repeats them."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    return random.Random(seed)
