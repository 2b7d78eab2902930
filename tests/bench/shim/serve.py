"""The Python servers that run.py measures: answers from a dict of bytes, and nothing else."""

import argparse
import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc
import uvloop

from kwok_operator.shim.grpcserver import GrpcServer
from kwok_operator.shim.status import RpcError, StatusCode

METHOD: Final = "/kwok.bench.Shim/NodeGroupForNode"
UNIMPLEMENTED: Final = "/kwok.bench.Shim/NodeGroupGetOptions"
SENTENCE: Final = "the group sets no options of its own"


def refuse(_: bytes) -> bytes:
    raise RpcError(StatusCode.UNIMPLEMENTED, SENTENCE)


async def ours(answers: dict[bytes, bytes], listen: str) -> None:
    server = GrpcServer({METHOD: answers.__getitem__, UNIMPLEMENTED: refuse})
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
    parser.add_argument("-server", choices=["ours", "asyncio", "grpcio"])
    parser.add_argument("-listen")
    parser.add_argument("-request", type=int)
    parser.add_argument("-reply", type=int)
    arguments = parser.parse_args()
    answers = {b"r" * arguments.request: b"a" * arguments.reply}
    if arguments.server == "grpcio":
        grpcio(answers, arguments.listen)
        return
    factory = uvloop.new_event_loop if arguments.server == "ours" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(ours(answers, arguments.listen))


if __name__ == "__main__":
    main()
