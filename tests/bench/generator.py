"""The bare ceiling: a load generator that does nothing but POST, PATCH and DELETE nodes.

    python -m tests.bench.generator KUBECONFIG

Each line on standard input is a command as JSON, answered by a line when it is done:

    {"do": "create", "prefix": "ceiling-abcd-", "first": 0, "count": 1000, "concurrency": 32,
     "parts": ["{...\\"name\\":\\"", ..., "\\"}"], "patch": ["[...\\"", "\\"...]"],
     "companions": [["/apis/...", "{...}"], ...], "marks": [NAME, UID]}
    {"do": "delete", "prefix": ..., "first": ..., "count": ..., "concurrency": ...}

It holds nothing, watches nothing, plans nothing and waits for nobody: bodies are rendered before
the run but for names and uids, answers are asked for as metadata only, and all that is taken from
them is a new node's uid. What an operator needs more time for than this is its own doing.
"""

import asyncio
import base64
import json
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

NODES: Final = "/api/v1/nodes"
_JSON_PATCH = {"Content-Type": "application/json-patch+json"}
_UID = b'"uid":"'
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_KEEPALIVE = 60.0
"""As the operator's: none of the two has colder connections than the other."""

Call = Callable[[str], Awaitable[Iterable[int]]]


def connect(kubeconfig: Path) -> aiohttp.ClientSession:
    """A session with the token in a kubeconfig as the bench writes it."""
    config = json.loads(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    tls = ssl.create_default_context()
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if "certificate-authority-data" in cluster:
        tls.load_verify_locations(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
    else:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return aiohttp.ClientSession(
        base_url=cluster["server"],
        connector=aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=_KEEPALIVE),
        headers={
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "User-Agent": "bench-ceiling",
            "Content-Type": "application/json",
            "Accept": _METADATA,
        },
        auto_decompress=False,
        skip_auto_headers=("Accept-Encoding",),
        timeout=aiohttp.ClientTimeout(total=60),
    )


async def spread(names: Iterable[str], call: Call, *, concurrency: int) -> Counter[int]:
    """Call for each name, so many at once; returns how many answers had which status."""
    answers: Counter[int] = Counter()
    queue: Iterator[str] = iter(names)

    async def work() -> None:
        for name in queue:
            answers.update(await call(name))

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return answers


def joined(parts: list[bytes], value: bytes) -> bytes:
    """The body with that name or uid: parts are what stands between its occurrences."""
    return value.join(parts)


def uid_of(answer: bytes) -> bytes:
    """The uid of a node: the first one in it, as owners come later."""
    start = answer.index(_UID) + len(_UID)
    return answer[start : answer.index(b'"', start)]


async def execute(session: aiohttp.ClientSession, command: dict[str, Any]) -> dict[str, Any]:
    """Carry out one command."""
    first, count, prefix = command["first"], command["count"], command["prefix"]
    names = (f"{prefix}{serial:07d}" for serial in range(first, first + count))

    async def create(name: str) -> list[int]:
        async with session.post(NODES, data=joined(parts, name.encode())) as posted:
            answer = await posted.read()
        if posted.status != HTTPStatus.CREATED:
            return [posted.status]
        data = joined(patch, uid_of(answer))
        async with session.patch(f"{NODES}/{name}", data=data, headers=_JSON_PATCH) as patched:
            await patched.read()
        return [posted.status, patched.status, *await follow(name.encode(), uid_of(answer))]

    async def follow(name: bytes, uid: bytes) -> list[int]:
        statuses = []
        for path, text in companions:
            data = text.replace(marks[0], name).replace(marks[1], uid)
            async with session.post(path, data=data) as posted:
                await posted.read()
            statuses.append(posted.status)
        return statuses

    async def delete(name: str) -> list[int]:
        async with session.delete(f"{NODES}/{name}") as answer:
            await answer.read()
        return [answer.status]

    parts = [part.encode() for part in command.get("parts", ())]
    patch = [part.encode() for part in command.get("patch", ())]
    companions = [(path, text.encode()) for path, text in command.get("companions", ())]
    marks = [mark.encode() for mark in command.get("marks", ())]
    started = time.monotonic()
    call = create if command["do"] == "create" else delete
    answers = await spread(names, call, concurrency=command["concurrency"])
    seconds = time.monotonic() - started
    return {"seconds": seconds, "answers": {str(k): v for k, v in answers.items()}}


async def main() -> None:
    reader = asyncio.StreamReader(limit=1 << 22)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with connect(Path(sys.argv[1])) as session:
        print(json.dumps({"ready": True}), flush=True)
        while line := await reader.readline():
            print(json.dumps(await execute(session, json.loads(line))), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
