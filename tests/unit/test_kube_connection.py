"""An endpoint that stays usable."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.kube.connection import ApiConnection, Endpoint, read_token
from tests.fakes.certificates import Certificates
from tests.fakes.recording import Clock

PLAIN = Endpoint(server="http://k8s")


class Loader:
    """Gives endpoints one after the other; the last one for ever."""

    def __init__(self, *endpoints: Endpoint | ConnectionConfigError) -> None:
        self.endpoints = list(endpoints)
        self.calls = 0
        self.allowed = asyncio.Event()
        self.allowed.set()

    async def __call__(self) -> Endpoint:
        self.calls += 1
        await self.allowed.wait()
        endpoint = self.endpoints.pop(0) if len(self.endpoints) > 1 else self.endpoints[0]
        if isinstance(endpoint, ConnectionConfigError):
            raise endpoint
        return endpoint


def bearer(headers: Mapping[str, str]) -> str:
    return headers["Authorization"].removeprefix("Bearer ")


def test_headers() -> None:
    assert PLAIN.headers() == {}
    basic = replace(PLAIN, scheme="Basic", token="dTpw", impersonate={"Impersonate-User": "me"})
    assert basic.headers() == {"Authorization": "Basic dTpw", "Impersonate-User": "me"}


def test_secrets_are_not_printed() -> None:
    text = repr(Endpoint(server="https://k8s", token="secret-1", private_key_data="secret-2"))
    assert "secret" not in text


async def test_token_file_is_read_again(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    endpoint = replace(PLAIN, token="one", token_file=str(path))
    connection = ApiConnection(endpoint, clock=clock)
    path.write_text("two\n")
    clock.now += 59
    assert bearer(await connection.auth_headers()) == "one"
    clock.now += 1
    assert bearer(await connection.auth_headers()) == "two"
    assert connection.endpoint.token == "two"
    path.write_text("three")
    assert bearer(await connection.auth_headers()) == "two"
    clock.now += 60
    assert bearer(await connection.auth_headers()) == "three"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff"])
async def test_broken_token_file_keeps_the_old_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    path, clock = tmp_path / "token", Clock()
    connection = ApiConnection(replace(PLAIN, token="one", token_file=str(path)), clock=clock)
    if content is not None:
        path.write_bytes(content)
    clock.now += 60
    assert bearer(await connection.auth_headers()) == "one"
    assert bearer(await connection.auth_headers()) == "one"
    assert len(caplog.records) == 1
    path.write_text("two")
    clock.now += 10
    assert bearer(await connection.auth_headers()) == "two"
    with pytest.raises(ConnectionConfigError, match="can't be read"):
        read_token(str(tmp_path))


@pytest.mark.parametrize(("life", "renewed_at"), [(3_600, 3_540), (100, 80)])
async def test_expiring_token_is_renewed_ahead(life: float, renewed_at: float) -> None:
    clock = Clock()
    start = clock.now
    loader = Loader(replace(PLAIN, token="two"))
    connection = ApiConnection(
        replace(PLAIN, token="one", expires=start + life), load=loader, clock=clock
    )
    clock.now = start + renewed_at - 1
    assert bearer(await connection.auth_headers()) == "one"
    clock.now = start + renewed_at
    assert bearer(await connection.auth_headers()) == "two"
    clock.now += 10 * life
    assert bearer(await connection.auth_headers()) == "two"
    assert loader.calls == 1


async def test_others_go_on_while_one_renews() -> None:
    clock = Clock()
    loader = Loader(replace(PLAIN, token="two"))
    loader.allowed.clear()
    connection = ApiConnection(
        replace(PLAIN, token="one", expires=clock.now + 100), load=loader, clock=clock
    )
    clock.now += 90
    first = asyncio.create_task(connection.auth_headers())
    await asyncio.sleep(0)
    assert bearer(await connection.auth_headers()) == "one"
    loader.allowed.set()
    assert bearer(await first) == "two"
    assert loader.calls == 1


async def test_failing_renewal_keeps_the_old_token(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    loader = Loader(ConnectionConfigError("plugin gone"), replace(PLAIN, token="two"))
    connection = ApiConnection(
        replace(PLAIN, token="one", expires=clock.now + 100), load=loader, clock=clock
    )
    clock.now += 90
    assert bearer(await connection.auth_headers()) == "one"
    assert "plugin gone" in caplog.text
    clock.now += 9
    assert bearer(await connection.auth_headers()) == "one"
    assert loader.calls == 1
    clock.now += 1
    assert bearer(await connection.auth_headers()) == "two"


async def test_one_reload_serves_all() -> None:
    clock = Clock()
    loader = Loader(replace(PLAIN, token="two"), replace(PLAIN, token="three"))
    connection = ApiConnection(replace(PLAIN, token="one"), load=loader, clock=clock)

    async def reloaded() -> str | None:
        await connection.reload()
        return connection.endpoint.token

    loader.allowed.clear()
    tasks = [asyncio.create_task(reloaded()) for _ in range(64)]
    await asyncio.sleep(0)
    loader.allowed.set()
    assert {*await asyncio.gather(*tasks)} == {"two"}, "all wait for it"
    assert loader.calls == 1
    clock.now += 4
    await connection.reload()
    assert loader.calls == 1
    clock.now += 1
    await connection.reload()
    assert (loader.calls, connection.endpoint.token) == (2, "three")


async def test_clock_that_goes_back_does_not_stop_reloads() -> None:
    clock = Clock()
    loader = Loader(replace(PLAIN, token="two"))
    connection = ApiConnection(PLAIN, load=loader, clock=clock)
    await connection.reload()
    clock.now -= 3_600
    await connection.reload()
    assert loader.calls == 2


async def test_a_reload_that_fails_or_has_no_loader_keeps_the_token() -> None:
    loader = Loader(ConnectionConfigError("plugin gone"))
    failing = ApiConnection(replace(PLAIN, token="one"), load=loader)
    with pytest.raises(ConnectionConfigError, match="plugin gone"):
        await failing.reload()
    plain = ApiConnection(replace(PLAIN, token="one"))
    await plain.reload()
    for connection in (failing, plain):
        assert bearer(await connection.auth_headers()) == "one"


async def test_tls_settings_change_only_with_reason(certificates: Certificates) -> None:
    clock = Clock()
    endpoint = Endpoint(server="https://k8s", ca_path=certificates.path("ca.crt"))
    loader = Loader(replace(endpoint, token="two"), replace(endpoint, insecure=True), endpoint)
    connection = ApiConnection(endpoint, load=loader, clock=clock)
    first = connection.ssl
    assert first is not None
    assert ApiConnection(PLAIN).ssl is None

    async def reloaded() -> object:
        clock.now += 5
        await connection.reload()
        return connection.ssl

    assert await reloaded() is first
    insecure = await reloaded()
    assert insecure is not first
    secure = await reloaded()
    os.utime(certificates.path("ca.crt"), (1, 1))
    assert await reloaded() is not secure


@pytest.mark.parametrize(
    "fields",
    [
        {"ca_data": "no PEM"},
        {"certificate_data": "no PEM", "private_key_data": "no PEM"},
        {"certificate_path": "/nowhere", "private_key_path": "/nowhere"},
    ],
)
def test_unusable_certificates(fields: dict[str, str]) -> None:
    with pytest.raises(ConnectionConfigError, match=r"^context x: the CA or the client"):
        ApiConnection(Endpoint(server="https://k8s", description="context x", **fields))  # type: ignore[arg-type]
