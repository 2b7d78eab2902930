"""Simulated trouble of the cloud's API: what its file may say, who meets it, what happens then."""

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import generate_latest

from kwok_operator.formats.yamltext import load_documents
from kwok_operator.shim.grpcserver import GrpcServer
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from kwok_operator.shim.metrics import ShimMetrics
from kwok_operator.shim.service import SERVICE
from kwok_operator.shim.trouble import ApiTrouble, Fate, fate
from kwok_operator.shim.troublefile import RPCS, Latency, TroublePlan, parse_plan, read_plan
from tests.fakes.apiserver import GROUPS, FakeApiServer
from tests.fakes.kubeconfigs import kubeconfig
from tests.fakes.protobuf import put
from tests.fakes.shimcalls import Shim, called
from tests.fakes.shimstore import group_of, node_of
from tests.fakes.shimstory import Story, story
from tests.fakes.waiting import until

__all__ = ["story"]

ASKS = {"apiTrouble": True}
BUSY = {"code": "UNAVAILABLE", "message": "the cloud is busy", "probability": 1}


def plan(*rules: dict[str, Any], seed: str = "run-1") -> TroublePlan:
    return parse_plan({"seed": seed, "rpcs": list(rules)})


def refused(text: str) -> str:
    with pytest.raises(ValueError, match=r"^can't be used: ") as error:
        parse_plan(load_documents(text, where="the file")[0])
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix("can't be used: ")


def rule(text: str) -> str:
    """What is said to a rule for all calls with this in it."""
    return refused(f'rpcs: [{{name: "*", {text}}}]')


class TestTheFile:
    def test_all_that_it_may_say(self, tmp_path: Path) -> None:
        file = tmp_path / "trouble.yaml"
        file.write_text(
            """
            seed: 42
            rpcs:
              - name: NodeGroupIncreaseSize
                groups: [web]
                latency: {lognormal: {p50: 200ms, p99: 4s}}
                errors:
                  - {probability: "0.1", code: RESOURCE_EXHAUSTED, message: rate exceeded}
                  - {probability: 0.05, code: INTERNAL}
                timeout: {probability: 0.05, after: true}
              - name: NodeGroupNodes
              - name: "*"
                latency: {samples: [20ms, 1m, 1s500ms]}
            """
        )
        found = read_plan(str(file))
        assert found.seed == "42"
        increase, quiet, rest = found.rpcs
        assert [error.code for error in increase.errors] == ["RESOURCE_EXHAUSTED", "INTERNAL"]
        assert "--api-trouble" in increase.errors[1].message
        assert found.rule("NodeGroupIncreaseSize", "web") is increase
        assert found.rule("NodeGroupIncreaseSize", "db") is rest, "the first that fits"
        assert found.rule("NodeGroupNodes", "web") is quiet, "one without trouble is an exception"
        assert found.rule("Refresh", "") is rest

    def test_mistakes_of_a_rule(self) -> None:
        for text, sentence in {
            "latency: {fixed: 5}": ".latency.fixed: 5 is not a time such as 200ms, 3s or 1m",
            "latency: {fixed: 1h}": ".latency.fixed: '1h' is not a time such as 200ms, 3s or 1m",
            "latency: 5s": ".latency: '5s' is no object; write its fields below it",
            "latency: {samples: []}": ".latency.samples: [] is empty; add an item",
            "latency: {fixed: 1s, samples: [2s]}": ".latency: must have exactly one of fixed,"
            " uniform, normal, lognormal, exponential, samples",
            "errors: [{code: INTERNAL}]": ".errors[0].probability: is missing; add it",
            'errors: [{code: INTERNAL, probability: 1, message: ""}]': ".errors[0].message: '' is"
            " empty; give it a text, or leave it out",
            "errors: {}": ".errors: is no list; begin each item with a dash",
            "timeout: {probability: 1, after: maybe}": ".timeout.after: 'maybe' is neither true"
            " nor false",
            "timeouts: {probability: 1}": ".timeouts: there is no such field; remove it, or correct"
            " its name",
            "errors: [{code: INTERNAL, probability: 0.5}], timeout: {probability: 0.6}": ": has"
            " probabilities of 1.1 together; lower them to 1 at most",
            "groups: web": ".groups: 'web' is no list; begin each item with a dash",
        }.items():
            assert rule(text) == f"rpcs[0]{sentence}"
        for text, shown in (("1.5", "1.5"), ("true", "True"), ('"nan"', "'nan'")):
            said = rule(f"errors: [{{code: INTERNAL, probability: {text}}}]")
            assert said.startswith(f"rpcs[0].errors[0].probability: {shown} is not a number from 0")

    def test_codes_and_calls_are_those_of_the_protocols(self) -> None:
        for code in ("Unavailable", "OK", "14"):
            said = rule(f'errors: [{{probability: 1, code: "{code}"}}]')
            assert said.startswith(f"rpcs[0].errors[0].code: {code!r} is no code; there are CANC")
        said = refused("rpcs: [{name: IncreaseSize}]")
        assert said.startswith("rpcs[0].name: 'IncreaseSize' is no call; there are NodeGroups,")
        assert "NodeGroupIncreaseSize" in said
        sentence = "rpcs[0]: has groups, and Refresh is about all of them; leave groups out"
        assert refused("rpcs: [{name: Refresh, groups: [web]}]") == sentence

    def test_mistakes_of_the_whole(self, tmp_path: Path) -> None:
        for text, sentence in {
            "seed: a": "rpcs: is missing; add it",
            "rpcs: []": "rpcs: [] is empty; add an item",
            "[]": "the file: [] is no object; write its fields below it",
            "seed: [1]\nrpcs: [{name: Refresh}]": "seed: [1] is no text; put it in quotes",
        }.items():
            assert refused(text) == sentence
        file = tmp_path / "trouble.yaml"
        for data, sentence in {
            b"": "has 0 documents, and must be one; it begins with rpcs:",
            b"a: 1\n---\nb: 2": "has 2 documents, and must be one; it begins with rpcs:",
            b"\xff": "is no text in UTF-8; give a YAML file",
            b"rpcs: [": "can't be used: the file, line ",
            b"#" * 2**21: "has more than 1048576 bytes; give a YAML file with fewer rules",
        }.items():
            file.write_bytes(data)
            with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
                read_plan(str(file))

    def test_the_examples_in_the_docs(self) -> None:
        page = "cluster-autoscaler.md"
        text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
        examples = [e for e in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "rpcs:" in e]
        assert examples
        for example in examples:
            parse_plan(load_documents(example, where=page)[0])


def latency(**kind: Any) -> Latency:
    return Latency.model_validate(kind)


def test_latencies_are_milliseconds() -> None:
    assert latency(fixed="50ms").milliseconds(0.5) == 50
    assert latency(fixed="1m1s1ms").milliseconds(0.5) == 60_000, "a minute at most"
    assert latency(uniform={"min": "10ms", "max": "30ms"}).milliseconds(0.5) == 20
    assert latency(samples=["1ms", "2s"]).milliseconds(0.9) == 2_000
    drawn = latency(lognormal={"p50": "200ms", "p99": "4s"})
    assert drawn.milliseconds(0.5) == pytest.approx(200, rel=0.01)
    assert drawn.milliseconds(0.99) == pytest.approx(4_000, rel=0.01)


MIXED = {
    "name": "NodeGroupIncreaseSize",
    "latency": {"exponential": {"mean": "100ms"}},
    "errors": [{**BUSY, "probability": 0.2}],
    "timeout": {"probability": 0.1},
}


def fates(made: TroublePlan, *, group: str = "web", count: int = 2_000) -> list[Fate]:
    return [
        fate(made, rpc="NodeGroupIncreaseSize", group=group, number=number)
        for number in range(count)
    ]


def test_fates_fit_the_plan_and_repeat_with_the_seed() -> None:
    found = fates(plan(MIXED))
    assert fates(plan(MIXED)) == found
    assert fates(plan(MIXED, seed="run-2")) != found != fates(plan(MIXED), group="db")
    assert sum(f.silent for f in found) / len(found) == pytest.approx(0.1, abs=0.03)
    assert sum(f.error is not None for f in found) / len(found) == pytest.approx(0.2, abs=0.03)
    assert median(f.latency for f in found) == pytest.approx(0.0693, rel=0.1)
    assert fate(plan(MIXED), rpc="NodeGroupNodes", group="web", number=0) == Fate()


class Trouble:
    """A shim that only reads, and trouble around its calls."""

    def __init__(self, made: TroublePlan, *groups: Any, synced: bool = True) -> None:
        self.shim = Shim(*groups, synced=synced)
        self.counted: Counter[tuple[str, str]] = Counter()
        self.trouble = ApiTrouble(
            made,
            store=self.shim.store,
            count=lambda rpc, kind: self.counted.update([(rpc, kind)]),
        )
        self.calls = self.trouble.wrap(self.shim.calls)

    async def call(self, name: str, request: bytes = b"") -> bytes:
        return await called(self.calls, name, request)

    async def code(self, name: str, request: bytes = b"") -> str:
        """OK, or that of the error."""
        try:
            await self.call(name, request)
        except RpcError as error:
            return error.code.name
        return "OK"


EVERYTHING = plan({"name": "*", "errors": [BUSY]})
ABOUT_ALL = ("NodeGroups", "GPULabel", "GetAvailableGPUTypes", "Cleanup", "Refresh")


class TestTouchedCalls:
    async def test_a_call_about_a_group_with_api_trouble(self) -> None:
        found = Trouble(EVERYTHING, group_of("web", cloud=ASKS), group_of("db", cloud={}))
        for name in ("NodeGroupTargetSize", "NodeGroupNodes"):
            assert await found.code(name, put(1, "web")) == "UNAVAILABLE"
            assert await found.code(name, put(1, "db")) == "OK"

    async def test_every_call_can_meet_it(self) -> None:
        group = group_of("web", cloud=ASKS, status={"nextSerial": 1})
        found = Trouble(EVERYTHING, group)
        found.shim.store.put_node(node_of(group, 0))
        name = group.names.name(0)
        node = put(1, f"kwok:{name}") + put(2, name)
        annotated = put(4, put(1, "cluster-autoscaler.kwok.nodegroup/name") + put(2, "web"))
        for rpc in RPCS:
            request = put(1, "web")
            if rpc in ("NodeGroupForNode", "PricingNodePrice"):
                request = put(1, node + annotated)
            elif rpc in ("NodeGroupIncreaseSize", "NodeGroupDecreaseTargetSize"):
                request = put(1, 1) + put(2, "web")
            elif rpc == "NodeGroupDeleteNodes":
                request = put(2, "web")
            elif rpc in ABOUT_ALL or rpc == "PricingPodPrice":
                request = b""
            assert await found.code(rpc, request) == "UNAVAILABLE", rpc
        assert found.counted == {(rpc, "error"): 1 for rpc in RPCS}

    async def test_a_call_about_all_groups_where_all_have_api_trouble(self) -> None:
        asking, other = group_of("web", cloud=ASKS), group_of("db")
        resting = group_of("rest", paused=True)
        for name in ABOUT_ALL:
            assert await Trouble(EVERYTHING, asking).code(name) == "UNAVAILABLE", name
            assert await Trouble(EVERYTHING, asking, other).code(name) == "OK", name
            nobody = "UNIMPLEMENTED" if name == "GPULabel" else "OK"
            assert await Trouble(EVERYTHING).code(name) == nobody, "nobody asks"
            assert await Trouble(EVERYTHING, asking, resting).code(name) == "UNAVAILABLE", name

    async def test_a_node_of_no_group_never(self) -> None:
        found = Trouble(EVERYTHING, group_of("web", cloud=ASKS))
        node = put(1, put(1, "aws:///b/i-0") + put(2, "real"))
        assert await found.code("NodeGroupForNode", node) == "OK"

    async def test_nobody_before_all_is_listed(self) -> None:
        found = Trouble(plan({"name": "*", "errors": [{**BUSY, "code": "INTERNAL"}]}), synced=False)
        found.shim.store.put_group(group_of("web", cloud=ASKS))
        assert await found.code("NodeGroupNodes", put(1, "web")) == "UNAVAILABLE"
        assert not found.counted

    async def test_bytes_that_are_no_message_are_an_invalid_argument(self) -> None:
        found = Trouble(EVERYTHING, group_of("web", cloud=ASKS))
        assert await found.code("NodeGroupNodes", b"\x0a\x7f") == "INVALID_ARGUMENT"

    def test_a_call_without_a_rule_is_as_it_was(self) -> None:
        found = Trouble(plan(MIXED), group_of("web", cloud=ASKS))
        kept = {path for path, handler in found.calls.items() if handler == found.shim.calls[path]}
        assert {p.removeprefix(SERVICE) for p in kept} | {"NodeGroupIncreaseSize", "Cleanup"} == {
            *RPCS
        }

    async def test_other_groups_change_nothing_for_one(self) -> None:
        """Calls for several groups come in any order."""
        rules = {"name": "NodeGroupNodes", "errors": [{**BUSY, "probability": 0.5}]}

        async def codes(*order: str) -> list[str]:
            found = Trouble(plan(rules), *(group_of(n, cloud=ASKS) for n in ("web", "db")))
            return [
                code
                for name in order
                for code in [await found.code("NodeGroupNodes", put(1, name))]
                if name == "web"
            ]

        alone = await codes(*["web"] * 30)
        assert await codes(*["web", "db", "db"] * 30) == alone
        assert set(alone) == {"OK", "UNAVAILABLE"}


def increase(delta: int) -> bytes:
    return put(1, delta) + put(2, "web")


@asynccontextmanager
async def served(
    calls: Any, trouble: ApiTrouble
) -> AsyncIterator[tuple[GrpcServer, grpc.aio.Channel]]:
    """A server with these calls, and a client of it."""
    wrapped: dict[str, Handler] = trouble.wrap(calls)
    server = GrpcServer(wrapped)
    port = await server.listen_tcp("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield server, channel
        trouble.stop()
        await server.stop(30)


def unary(channel: grpc.aio.Channel, name: str) -> Any:
    return channel.unary_unary(f"{SERVICE}{name}", None, None)


async def status_of(call: Awaitable[bytes]) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


def troubled(
    story: Story, *rules: dict[str, Any], count: Callable[[str, str], None] = lambda *_: None
) -> ApiTrouble:
    story.change(cloud=ASKS)
    return ApiTrouble(plan(*rules), store=story.store, count=count)


class TestWrites:
    """What an increase has done, when cluster-autoscaler hears an error."""

    async def test_after_an_error_nothing_has_happened(self, story: Story) -> None:
        calls = troubled(story, {"name": "*", "errors": [BUSY]}).wrap(story.calls)
        with pytest.raises(RpcError, match="the cloud is busy") as error:
            await called(calls, "NodeGroupIncreaseSize", increase(3))
        assert error.value.code is StatusCode.UNAVAILABLE
        assert story.spec["targetSize"] == 0
        assert story.server.calls["patch", "kwoknodegroups"] == 0

    @pytest.mark.parametrize(("after", "target"), [(False, 0), (True, 3)])
    async def test_no_answer_may_hide_a_write(self, story: Story, after: bool, target: int) -> None:
        silent = {"name": "NodeGroupIncreaseSize", "timeout": {"probability": 1, "after": after}}
        met: list[str] = []
        trouble = troubled(story, silent, count=lambda rpc, kind: met.append(kind))
        async with served(story.calls, trouble) as (_, channel):
            call = unary(channel, "NodeGroupIncreaseSize")(increase(3))
            await until(lambda: met)
            await until(lambda: story.store.target(story.group) == target)
            assert not call.done()
            call.cancel()
        assert met == ["timeout"]
        assert story.spec["targetSize"] == target

    async def test_a_refusal_without_an_answer(self, story: Story) -> None:
        """No answer is none: also the sentence on why it can't be done is lost."""
        rule = {"name": "NodeGroupIncreaseSize", "timeout": {"probability": 1, "after": True}}
        trouble = troubled(story, rule)
        trouble.stop()
        with pytest.raises(RpcError, match="no answer"):
            await called(trouble.wrap(story.calls), "NodeGroupIncreaseSize", increase(1_000))

    async def test_a_latency_beyond_the_deadline_writes_nothing(self, story: Story) -> None:
        late = {"name": "NodeGroupIncreaseSize", "latency": {"fixed": "60s"}}
        async with served(story.calls, troubled(story, late)) as (_, channel):
            call = unary(channel, "NodeGroupIncreaseSize")
            assert await status_of(call(increase(3), timeout=0.1)) == "DEADLINE_EXCEEDED"
        assert story.spec["targetSize"] == 0


class TestWaiting:
    async def test_waiting_calls_hold_up_no_others_and_end_with_the_shim(
        self, story: Story
    ) -> None:
        """A call under way is let go on, and one without an answer gets an error."""
        trouble = troubled(
            story,
            {"name": "NodeGroupIncreaseSize", "latency": {"fixed": "60s"}},
            {"name": "NodeGroupNodes", "timeout": {"probability": 1}},
        )
        begun = asyncio.get_running_loop().time()
        async with served(story.calls, trouble) as (server, channel):
            late = unary(channel, "NodeGroupIncreaseSize")(increase(2))
            silent = unary(channel, "NodeGroupNodes")(put(1, "web"))
            both = asyncio.gather(status_of(late), status_of(silent))
            target = unary(channel, "NodeGroupTargetSize")
            for _ in range(20):
                assert await target(put(1, "web"), timeout=30) == b""
            assert not both.done()
            trouble.stop()
            await server.stop(60)
            assert list(await both) == ["OK", "UNAVAILABLE"]
        assert asyncio.get_running_loop().time() - begun < 50, "not what it would have waited"
        assert story.spec["targetSize"] == 2

    async def test_a_short_latency_is_just_that(self) -> None:
        rules = {"name": "NodeGroupNodes", "latency": {"fixed": "20ms"}}
        found = Trouble(plan(rules), group_of("web", cloud=ASKS))
        begun = asyncio.get_running_loop().time()
        assert await found.call("NodeGroupNodes", put(1, "web")) == b""
        assert asyncio.get_running_loop().time() - begun >= 0.019
        assert found.counted == {("NodeGroupNodes", "latency"): 1}


def test_it_is_counted() -> None:
    metrics = ShimMetrics()
    metrics.trouble("Refresh", "latency")
    line = b'kwok_operator_shim_api_troubles_total{kind="latency",method="Refresh"} 1.0'
    assert line in generate_latest(metrics.registry)


GROUP = {
    "apiVersion": "kwok-operator.io/v1alpha1",
    "kind": "KwokNodeGroup",
    "metadata": {"name": "web"},
    "spec": {"targetSize": 0, "autoscaling": {}, "cloud": ASKS},
}


async def test_the_whole_shim(tmp_path: Path) -> None:
    """It says so in its log, and a call without an answer doesn't keep it from ending."""
    file, socket = tmp_path / "trouble.yaml", tmp_path / "shim.sock"
    file.write_text(
        "rpcs:\n"
        "  - {name: NodeGroupNodes, timeout: {probability: 1}}\n"
        "  - {name: Refresh, errors: [{probability: 1, code: INTERNAL, message: out of luck}]}\n"
    )
    async with FakeApiServer() as server:
        server.create(GROUPS, GROUP)
        config = kubeconfig(tmp_path / "config", user={}, server=server.url)
        command = [sys.executable, "-m", "kwok_operator", "shim", f"--kubeconfig={config}"]
        flags = [f"--listen=unix:{socket}", "--metrics-listen=0", f"--api-trouble={file}"]
        process = await asyncio.create_subprocess_exec(
            *command, *flags, stderr=asyncio.subprocess.PIPE
        )
        try:
            await until(socket.exists)
            async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
                refresh = unary(channel, "Refresh")
                codes: list[str] = []
                while (codes or ["UNAVAILABLE"])[-1] == "UNAVAILABLE":  # until all is listed
                    codes.append(await status_of(refresh(b"", timeout=60)))
                assert codes[-1] == "INTERNAL"
                nodes = unary(channel, "NodeGroupNodes")
                waiting = asyncio.ensure_future(status_of(nodes(put(1, "web"))))
                await unary(channel, "NodeGroupTargetSize")(put(1, "web"))
                process.send_signal(signal.SIGTERM)
                assert await waiting == "UNAVAILABLE"
            _, log = await asyncio.wait_for(process.communicate(), 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert b"trouble of the cloud's API is made up" in log
    assert b"NodeGroupNodes,Refresh" in log
