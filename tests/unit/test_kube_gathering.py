"""One look at a socket for many events."""

import asyncio
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest

from kwok_operator.kube import gathering
from kwok_operator.kube.gathering import GATHER, gather

Pair = tuple[socket.socket, socket.socket]


class Transport:
    def __init__(self, sock: socket.socket | None) -> None:
        self.sock = sock

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self.sock}.get(name)


def gathered(sock: socket.socket | None) -> "asyncio.Task[None]":
    return asyncio.create_task(gather(cast(asyncio.BaseTransport, Transport(sock)), GATHER))


def readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0.02)[0])


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


async def test_what_comes_meanwhile_is_readable_afterwards(pair: Pair) -> None:
    ours, theirs = pair
    task = gathered(ours)
    await asyncio.sleep(0)
    theirs.sendall(b"event\n")
    assert not readable(ours)
    await task
    assert readable(ours)
    assert ours.recv(100) == b"event\n"


async def test_a_lot_is_readable_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_ENOUGH", 10_000)
    ours, theirs = pair
    task = gathered(ours)
    await asyncio.sleep(0)
    theirs.sendall(b"x" * 9_000)
    assert not readable(ours)
    theirs.sendall(b"x" * 9_000)
    assert readable(ours)
    await task


async def test_the_next_event_after_it_is_seen_at_once(pair: Pair) -> None:
    ours, theirs = pair
    await gathered(ours)
    theirs.sendall(b"x")
    assert readable(ours)


async def test_a_socket_that_is_closed_meanwhile_is_no_error(pair: Pair) -> None:
    ours, _ = pair
    task = gathered(ours)
    await asyncio.sleep(0)
    ours.close()
    await task


async def test_without_a_socket_there_is_nothing_to_wait_for() -> None:
    await asyncio.wait_for(gather(None, GATHER), GATHER / 2)
    await asyncio.wait_for(gathered(None), GATHER / 2)
