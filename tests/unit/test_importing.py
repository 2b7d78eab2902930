"""`kwok-operator import` against an API server that can be made to fail."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.cli.main import main
from kwok_operator.importing.importer import run_import
from kwok_operator.importing.kinds import KINDS
from kwok_operator.importing.settings import ImportSettings
from kwok_operator.reporter import Reporter
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.kubeconfigs import kubeconfig
from tests.fakes.reflecting import Naps
from tests.fakes.waiting import until

DEPLOYMENTS = "/apis/apps/v1/deployments"
NAMESPACES = "/api/v1/namespaces"
FAST = ("--requests-per-second", "1000")


def node(name: str) -> dict[str, Any]:
    resources = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {"eks.amazonaws.com/nodegroup": "blue"}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def deployment(name: str, namespace: str = "shop") -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "web", "image": "shop.example/web:1", "env": [{"name": "A", "value": "b"}]}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        for kind in KINDS.values():
            server.serve(kind.path, kind=kind.name)
        for number in range(3):
            server.create(NODES, node(f"node-{number}"))
        for name in ("shop", "bank"):
            server.create(NAMESPACES, {"metadata": {"name": name}})
        server.create(DEPLOYMENTS, deployment("cart"))
        server.create(DEPLOYMENTS, deployment("ledger", "bank"))
        yield server


Import = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def run(server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Import:
    """Runs the command, and gives its exit code and what it said."""
    path = kubeconfig(tmp_path / "kubeconfig", server=server.url)
    given = ["import", "--kubeconfig", path, "--output", str(tmp_path / "out"), *FAST]

    async def run_it(*flags: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, [*given, *flags])
        return code, "".join(capsys.readouterr())

    return run_it


async def begun(path: str, output: Path, *flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "kwok_operator", "import"),
        *("--kubeconfig", path, "--output", str(output), *FAST, *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )


def written(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def ledger(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "ledger.json").read_text())
    return found


async def test_all_is_written_and_twice_the_same(run: Import, tmp_path: Path) -> None:
    code, said = await run()
    assert code == 0, said
    first = written(tmp_path / "out")
    assert "cart" in first["namespaces/shop.yaml"]
    assert "targetSize: 3" in first["nodegroups.yaml"]
    assert ledger(tmp_path / "out")["read"]["Node"] == 3
    assert (await run())[0] == 0
    assert written(tmp_path / "out") == first


async def test_a_kind_that_is_refused_is_reported(
    run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, verb="list", resource="nodes")
    code, said = await run()
    assert code == 1
    assert "right to list nodes" in said
    found = ledger(tmp_path / "out")
    assert [(each["kind"], each["needed"]) for each in found["unread"]] == [("Node", True)]
    assert "cart" in written(tmp_path / "out")["namespaces/shop.yaml"]


async def test_an_item_that_is_no_object_is_reported(
    run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    items: list[Any] = [None, 7, "text", [], {}, {"metadata": []}, {"metadata": {"name": 5}}]
    answer = {"items": [*items, *server.objects(DEPLOYMENTS).values()]}
    server.answer(json.dumps(answer).encode(), resource="deployments")
    nodes = {"items": [*items, *server.objects(NODES).values()]}
    server.answer(json.dumps(nodes).encode(), resource="nodes")
    code, said = await run()
    assert code == 0, said
    found = ledger(tmp_path / "out")
    assert {each["reason"] for each in found["dropped"]} >= {"NoObject"}
    assert found["written"]["Deployment"] == 2
    assert "targetSize: 3" in written(tmp_path / "out")["nodegroups.yaml"]


async def test_what_isn_t_served_is_no_failure(
    run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    del server.store.collections["/apis/policy/v1/poddisruptionbudgets"]
    code, _ = await run()
    assert code == 0
    (unread,) = ledger(tmp_path / "out")["unread"]
    assert (unread["kind"], unread["needed"]) == ("PodDisruptionBudget", False)


async def test_an_api_server_that_goes_leaves_what_was_read(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.hold(verb="list", resource="pods")
    url = server.url
    path = kubeconfig(tmp_path / "kubeconfig", server=url)
    settings = ImportSettings(tmp_path / "out", kubeconfig=path, requests_per_second=1000)
    reporter = Reporter(screen := io.StringIO())
    running = asyncio.create_task(run_import(settings, reporter=reporter, sleep=Naps()))
    await until(lambda: server.calls["list", "pods"] > 0)
    await server.stop()
    assert "Pod" in {each.kind for each in (await running).missing}
    assert "cart" in written(tmp_path / "out")["namespaces/shop.yaml"]
    said = screen.getvalue() + written(tmp_path / "out")["ledger.md"]
    assert said.count(url) > 1


WRONG_FLAGS = [
    ["--requests-per-second", "0"],
    ["--requests-per-second", "nan"],
    ["--namespace", "../secrets"],
    ["--namespace", "a", "--exclude-namespace", "a"],
    ["--group-by", ""],
    ["--prices", "/nowhere"],
    ["--max-size", "0"],
    ["--max-size", "1e9999999"],
    ["--max-size", "x0.5"],
    ["--max-size", "2.5"],
    ["--within", "5"],
    ["--rehearse", "--within", "0"],
    ["--rehearse", "--binary", "karpenter=/bin/true"],
    ["--rehearse", "--binary", "cluster-autoscaler=/nowhere"],
    ["--anonymize-table", "somewhere"],
    ["--context", "unknown"],
]


@pytest.mark.parametrize("wrong", ["no server", "all refused", "foreign", "flags"])
async def test_nothing_is_written_without_a_cluster(
    wrong: str, run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    attempts: list[list[str]] = [[]]
    match wrong:
        case "no server":
            server.tokens = set()
        case "all refused":
            server.fail(403, verb="list", times=100)
        case "foreign":
            output.mkdir()
            (output / "mine").write_text("mine")
        case "flags":
            attempts = WRONG_FLAGS
    before = written(tmp_path)
    for flags in attempts:
        code, said = await run(*flags)
        assert code == 2, said
        assert written(tmp_path) == before


async def test_bounds_and_missing_prices(run: Import, tmp_path: Path) -> None:
    assert "no bounds are known of 1 group" in (await run())[1]
    code, said = await run("--max-size=x2")
    assert code == 0 and "groups have no prices" in said and "no bounds" not in said
    assert "maxSize: 6" in written(tmp_path / "out")["nodegroups.yaml"]
    prices = tmp_path / "prices.csv"
    prices.write_text("instanceType,zone,hourly\nother,,1\n")
    _, said = await run(f"--prices={prices}")
    assert "--prices has no price for 1 group: " in said


async def test_a_role_of_an_earlier_version_is_enough(
    run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    for expected, flags in ((0, []), (1, ["--hpas=metrics"])):
        server.fail(403, verb="list", resource="horizontalpodautoscalers")
        assert (await run(*flags))[0] == expected
        (unread,) = ledger(tmp_path / "out")["unread"]
        assert (unread["kind"], unread["needed"]) == ("HorizontalPodAutoscaler", bool(expected))


async def test_only_the_named_namespaces_are_read(
    run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    del server.store.collections[DEPLOYMENTS]
    server.serve("/apis/apps/v1/namespaces/shop/deployments", kind="Deployment")
    server.create("/apis/apps/v1/namespaces/shop/deployments", deployment("cart"))
    code, said = await run("--namespace", "shop")
    assert code == 0, said
    found = json.dumps(written(tmp_path / "out"))
    assert "cart" in found and "bank" not in found


@pytest.mark.parametrize(("flag", "code"), [("--namespace", 1), ("--exclude-namespace", 0)])
async def test_a_namespace_that_is_not_there_is_reported(
    flag: str, code: int, run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    for resource in ("deployments", "pods"):
        server.serve(f"/apis/apps/v1/namespaces/nope/{resource}", kind="List")
    ended, said = await run(flag, "nope")
    assert ended == code, said
    assert f"{flag} nope" in said
    assert f"{flag} nope" in written(tmp_path / "out")["ledger.md"]


async def test_namespaces_are_left_out(run: Import, tmp_path: Path) -> None:
    code, said = await run("--exclude-namespace", "bank")
    assert code == 0, said
    assert "bank" not in json.dumps(written(tmp_path / "out"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
async def test_a_signal_leaves_nothing_half_written(
    number: int, code: int, server: FakeApiServer, tmp_path: Path
) -> None:
    server.hold(verb="list", resource="pods")
    path = kubeconfig(tmp_path / "kubeconfig", server=server.url)
    process = await begun(path, tmp_path / "out", "--anonymize")
    await until(lambda: server.calls["list", "pods"] > 0)
    process.send_signal(number)
    said, _ = await process.communicate()
    assert process.returncode == code, said
    assert b"Traceback" not in said
    assert list(written(tmp_path)) == ["kubeconfig"]


async def test_anonymous_names_are_kept_beside(
    run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    secret = ("cart", "shop", "bank", "blue", "node-1")
    server.fail(403, verb="list", resource="pods", message="bank is forbidden to cart")
    code, _ = await run("--anonymize")
    assert code == 1
    first = written(tmp_path / "out")
    assert not [name for name in secret if name in json.dumps(first)]
    table = tmp_path / "out.names.json"
    assert "cart" in table.read_text()
    assert table.stat().st_mode & 0o777 == 0o600
    server.fail(403, verb="list", resource="pods")
    await run("--anonymize")
    assert written(tmp_path / "out") == first
    server.delete(DEPLOYMENTS, "cart")
    await run("--anonymize")
    assert "cart" in table.read_text(), "who has kept the first one may ask what it was about"


async def test_anonymous_objects_are_in_an_order_of_their_own(
    run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    for number in range(10):
        server.create(DEPLOYMENTS, deployment(f"cart-{number}"))
    assert (await run("--anonymize"))[0] == 0
    table = json.loads((tmp_path / "out.names.json").read_text())["names"]
    files = written(tmp_path / "out").items()
    texts = [text for name, text in files if name.startswith("namespaces/")]
    (objects,) = [found for found in map(list, map(yaml.safe_load_all, texts)) if len(found) > 9]
    names = [each["metadata"]["name"] for each in objects]
    assert names == sorted(names)
    assert [table[name] for name in names] != sorted(table[name] for name in names)


@pytest.mark.parametrize("place", ["out/names.json", "mine"])
async def test_a_table_that_can_t_be_is_reported(
    place: str, run: Import, server: FakeApiServer, tmp_path: Path
) -> None:
    mine = '{"key": "", "names": {}}'  # no key is everybody's
    (tmp_path / "mine").write_text(mine)
    flags = ["--anonymize", "--anonymize-table", str(tmp_path / place)]
    code, _ = await run(*flags)
    assert code == 2
    assert (tmp_path / "mine").read_text() == mine
    assert not (tmp_path / "out").exists()
    assert server.seen == []
