"""The Python servers that run.py measures.

ours, asyncio and grpcio answer from a dict of bytes, and do nothing else. shim-N is the shim itself
with N nodes: for each call it takes the request of one of them, reads it, and looks it up.
"""

import argparse
import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Final, cast

import grpc
import uvloop

from kwok_operator.shim.grpcserver import GrpcServer
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.service import SERVICE, CloudProvider
from kwok_operator.shim.settings import Selector
from kwok_operator.shim.store import Store
from kwok_operator.shim.writer import TargetWriter
from tests.fakes.shimstore import group_of, node_of

METHOD: Final = "/kwok.bench.Shim/NodeGroupForNode"
UNIMPLEMENTED: Final = "/kwok.bench.Shim/NodeGroupGetOptions"
SENTENCE: Final = "the group sets no options of its own"


def shim(nodes: int, reply: int) -> tuple[Handler, Handler]:
    """NodeGroupForNode and NodeGroupGetOptions as the shim answers them."""
    store = Store(selector=Selector(), provider_id_prefix="kwok:")
    store.replace_groups([group := group_of("benchmarks")], 0)
    views = [node_of(group, serial) for serial in range(nodes)]
    store.nodes.replace(views, 0)
    store.groups.synced.set()
    handlers = CloudProvider(store=store, writer=cast(TargetWriter, None)).handlers()
    requests = [
        pb.NodeGroupForNodeRequest(
            node=pb.ExternalGrpcNode(
                providerID=view.provider_id,
                name=view.name,
                labels=view.labels,
                annotations=view.annotations,
            )
        ).SerializeToString()
        for view in views
    ]
    for_node = handlers[f"{SERVICE}NodeGroupForNode"]
    options = handlers[f"{SERVICE}NodeGroupGetOptions"]
    asked = pb.NodeGroupAutoscalingOptionsRequest(id=group.name).SerializeToString()
    if len(cast(bytes, for_node(requests[0]))) != reply:
        raise SystemExit("the shim's answer is not as long as the others'")
    following = cycle(requests)
    return lambda _: for_node(next(following)), lambda _: options(asked)


def refuse(_: bytes) -> bytes:
    raise RpcError(StatusCode.UNIMPLEMENTED, SENTENCE)


async def ours(answer: Handler, refusal: Handler, listen: str) -> None:
    server = GrpcServer({METHOD: answer, UNIMPLEMENTED: refusal})
    if listen.startswith("unix:"):
        await server.listen_unix(listen.removeprefix("unix:"))
    else:
        host, _, port = listen.rpartition(":")
        listen = f"{host}:{await server.listen_tcp(host, int(port))}"
    print("listening", listen, flush=True)
    await asyncio.Event().wait()


def grpcio(answers: dict[bytes, bytes], listen: str) -> None:
    def answer(request: bytes, _: grpc.ServicerContext) -> bytes:
        return answers[request]

    def refused(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, SENTENCE)

    handlers = {
        METHOD.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(answer),
        UNIMPLEMENTED.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(refused),
    }
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    generic = grpc.method_handlers_generic_handler(METHOD.split("/")[1], handlers)
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port(listen)
    server.start()
    print("listening", listen if listen.startswith("unix:") else f"127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-server", help="ours, asyncio, grpcio or shim-N")
    parser.add_argument("-listen")
    parser.add_argument("-request", type=int)
    parser.add_argument("-reply", type=int)
    arguments = parser.parse_args()
    answers = {b"r" * arguments.request: b"a" * arguments.reply}
    if arguments.server == "grpcio":
        grpcio(answers, arguments.listen)
        return
    factory = None if arguments.server == "asyncio" else uvloop.new_event_loop
    answer: Handler = answers.__getitem__
    refusal: Handler = refuse
    if arguments.server.startswith("shim-"):
        answer, refusal = shim(int(arguments.server.removeprefix("shim-")), arguments.reply)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(ours(answer, refusal, arguments.listen))


if __name__ == "__main__":
    main()
