"""How the operator is looked at from outside: its log lines, and its HTTP port."""

import ast
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

import kwok_operator
from kwok_operator.errors import SettingsError
from kwok_operator.observability import logs
from kwok_operator.observability.health import HealthServer

HOST = "127.0.0.1"
STREAM: type[logging.Handler] = logging.StreamHandler


Said = Callable[[], list[str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Iterator[Said]:
    """The lines that were logged; loggers are as before afterwards."""
    root = logging.getLogger()
    names = ["", "kopf", "kubernetes_asyncio", "asyncio", "aiohttp.access"]
    before = {name: logging.getLogger(name).level for name in names}
    kept = root.handlers[:]
    yield lambda: capsys.readouterr().err.splitlines()
    root.handlers[:] = [h for h in root.handlers if h in kept or type(h) is not STREAM]
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


class TestJsonLogs:
    def test_a_record_is_one_object(self, said: Said) -> None:
        logs.configure(log_format="json", level="info")
        logging.getLogger("kwok_operator.test").info("ready: groups=%d nodes=%d", 2, 30)
        (line,) = said()
        record = json.loads(line)
        assert datetime.fromisoformat(record.pop("time")).tzinfo is not None
        assert record == {
            "level": "info",
            "logger": "kwok_operator.test",
            "message": "ready: groups=2 nodes=30",
        }

    def test_any_message_is_one_line(self, said: Said) -> None:
        logs.configure(log_format="json", level="info")
        messages = ["two\nlines", 'a "quote" \\', "é☃𝄞\u2028", "%s %d", "\x1b[31mred"]
        for message in messages:
            logging.getLogger("x").warning(message)
        assert [json.loads(line)["message"] for line in said()] == messages

    def test_an_exception_comes_with_its_traceback_in_the_same_line(self, said: Said) -> None:
        logs.configure(log_format="json", level="info")
        try:
            raise ValueError("no such node")
        except ValueError:
            logging.getLogger("x").exception("reconciling failed")
        (line,) = said()
        record = json.loads(line)
        assert (record["level"], record["message"]) == ("error", "reconciling failed")
        assert record["traceback"].startswith("Traceback (most recent call last)")
        assert record["traceback"].endswith("ValueError: no such node")


class TestTextLogs:
    def test_a_line_has_time_level_and_message(self, said: Said) -> None:
        logs.configure(log_format="text", level="info")
        logging.getLogger("x").warning("template refused: group=%s", "web")
        (line,) = said()
        date, _, level, message = line.split(maxsplit=3)
        datetime.fromisoformat(date)
        assert (level, message) == ("WARNING", "template refused: group=web")


@pytest.mark.parametrize("log_format", ["text", "json"])
class TestBothLogs:
    def test_what_is_below_the_level_is_left_out(self, said: Said, log_format: str) -> None:
        for level, expected in (("debug", 4), ("info", 3), ("error", 1)):
            logs.configure(log_format=log_format, level=level)
            for method in ("debug", "info", "warning", "error"):
                getattr(logging.getLogger("x"), method)("words")
            assert len(said()) == expected, level

    def test_libraries_speak_only_of_problems(self, said: Said, log_format: str) -> None:
        logs.configure(log_format=log_format, level="debug")
        for library in ("kopf", "kopf.objects", "kubernetes_asyncio", "asyncio"):
            logging.getLogger(library).info("chatter")
            logging.getLogger(library).warning("a problem")
            (line,) = said()
            assert "a problem" in line, library

    def test_kopf_does_not_log_its_own_end(self, said: Said, log_format: str) -> None:
        logs.configure(log_format=log_format, level="debug")
        logging.getLogger("kopf._core.reactor.queueing").error("an end, with a traceback")
        assert said() == []

    def test_configured_twice_a_line_is_still_said_once(self, said: Said, log_format: str) -> None:
        logs.configure(log_format=log_format, level="info")
        logs.configure(log_format=log_format, level="info")
        logging.getLogger("x").info("once")
        assert len(said()) == 1


class Probes:
    """What is wrong at the moment."""

    sick: str | None = None
    waiting: str | None = None
    remarks: tuple[str, ...] = ()


@pytest.fixture
def port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        number: int = listener.getsockname()[1]
        return number


@pytest.fixture
def probes() -> Probes:
    return Probes()


@pytest.fixture
async def server(probes: Probes, port: int) -> AsyncIterator[HealthServer]:
    registry = CollectorRegistry()
    Counter("kwok_operator_tests", "Tests.", ["group"], registry=registry).labels("web").inc(3)
    server = HealthServer(
        registry=registry,
        healthy=lambda: probes.sick,
        ready=lambda: probes.waiting,
        remarks=lambda: probes.remarks,
    )
    await server.start(HOST, port)
    yield server
    await server.close()


async def get(port: int, path: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{port}{path}") as answer,
    ):
        return answer.status, answer.headers["Content-Type"], await answer.text()


@pytest.mark.usefixtures("server")
class TestHealth:
    async def test_all_is_well(self, port: int) -> None:
        for path in ("/healthz", "/readyz"):
            status, _, body = await get(port, path)
            assert (status, body) == (200, "ok\n"), path

    async def test_each_probe_reports_its_own_problem(self, port: int, probes: Probes) -> None:
        probes.waiting = "waiting for the CRD"
        status, _, body = await get(port, "/readyz")
        assert (status, body) == (503, "waiting for the CRD\n")
        assert (await get(port, "/healthz"))[0] == 200

    async def test_a_remark_is_no_reason_to_be_unready(self, port: int, probes: Probes) -> None:
        probes.remarks = ("standby: web-0 leads", "no kwok controller")
        status, _, body = await get(port, "/readyz")
        assert (status, body) == (200, "ok\nstandby: web-0 leads\nno kwok controller\n")
        assert (await get(port, "/healthz"))[2] == "ok\n"
        probes.waiting = "waiting for the CRD"
        assert (await get(port, "/readyz"))[2] == "waiting for the CRD\n"

    async def test_probes_are_asked_each_time(self, port: int, probes: Probes) -> None:
        probes.sick = "the watch has heard nothing for 400 s"
        assert (await get(port, "/healthz"))[0] == 503
        probes.sick = None
        assert (await get(port, "/healthz"))[0] == 200

    async def test_metrics(self, port: int) -> None:
        status, kind, body = await get(port, "/metrics")
        assert status == 200
        assert kind.startswith("text/plain")
        assert 'kwok_operator_tests_total{group="web"} 3.0\n' in body

    async def test_nothing_else_is_served(self, port: int) -> None:
        assert (await get(port, "/"))[0] == 404


@pytest.mark.usefixtures("server")
async def test_an_address_that_is_taken_is_an_error_in_one_line(port: int) -> None:
    second = HealthServer(registry=CollectorRegistry(), healthy=lambda: None, ready=lambda: None)
    try:
        with pytest.raises(SettingsError) as refused:
            await second.start(HOST, port)
    finally:
        await second.close()
    assert str(refused.value).startswith(f"--listen {HOST}:{port}: ")
    assert "give another address, or 0 for none" in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_closed_server_gives_its_address_back(port: int) -> None:
    for _ in range(2):
        server = HealthServer(
            registry=CollectorRegistry(), healthy=lambda: None, ready=lambda: None
        )
        await server.start(HOST, port)
        assert (await get(port, "/healthz"))[0] == 200
        await server.close()
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(port, "/healthz")


def test_each_trouble_that_is_logged_has_an_end() -> None:
    def named(module: ast.Module) -> set[tuple[str, str]]:
        extras = [node.value for node in ast.walk(module) if isinstance(node, ast.keyword)]
        return {
            (ast.literal_eval(key), ast.unparse(value))
            for extra in extras
            if isinstance(extra, ast.Dict)
            for key, value in zip(extra.keys, extra.values, strict=True)
            if isinstance(key, ast.Constant) and key.value in ("trouble", "over")
        }

    package = Path(kwok_operator.__file__).parent
    found = {path: named(ast.parse(path.read_text())) for path in package.rglob("*.py")}
    begins, over = (
        {(path, name) for path, names in found.items() for key, name in names if key == wanted}
        for wanted in ("trouble", "over")
    )
    assert begins == over
    assert len(begins) >= 5
