"""The operator's token ends in the middle of its work, and another one lies in its file."""

import time
from pathlib import Path

import pytest

from tests.chaos.tokens import Tokens
from tests.chaos.world import NOT_TOO_QUICK, World
from tests.e2e.own_cluster import OwnCluster


@pytest.fixture
def tokens(own: OwnCluster, tmp_path: Path) -> Tokens:
    return Tokens(own.kubectl, tmp_path / "token")


def start(world: World, tokens: Tokens) -> str:
    """The operator runs with a token; returns what that is bound to."""
    first = tokens.renew()
    kubeconfig = tokens.kubeconfig(world.kubeconfig, tokens.file.with_name("kubeconfig"))
    world.start(NOT_TOO_QUICK, wired=True, kubeconfig=kubeconfig)
    return first


def test_token_ends_after_it_was_renewed_and_before(world: World, tokens: Tokens) -> None:
    first = start(world, tokens)
    with world.scaling(to=world.scope.nodes // 2):
        second = tokens.renew()
        tokens.end(first)
        world.wire.cut()  # so that all have to log in again, watches too
    world.converges()
    tokens.end(second)
    tokens.lose()
    world.wire.cut()
    world.scale(to=world.scope.nodes)
    asked, since = sum(world.wire.proxy.requests.values()), time.monotonic()
    time.sleep(world.scope.outage)
    asked = sum(world.wire.proxy.requests.values()) - asked
    seconds = time.monotonic() - since
    print(f"{asked} requests with a token that has ended, in {seconds:.1f} s")
    assert asked < 20 * seconds, "it doesn't storm the API server meanwhile"
    tokens.renew()
    world.converges()
