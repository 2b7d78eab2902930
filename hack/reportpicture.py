"""The picture of a report in README.md and docs/rehearsals.md: what a browser shows of it.

python -m hack.reportpicture RECORDING    write docs/img/report.webp

The recording is that of a real run, and isn't kept; so nothing checks whether the picture is stale.
"""

import argparse
import asyncio
import base64
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.chromium import ALIVE, BrowserPage, browser
from kwok_operator.rehearsal.outputs import judge, page_script
from kwok_operator.rehearsal.report.page import page

PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "img" / "report.webp"
_WIDTH: Final = 1160
_AT: Final = 0.3
"""Where the cursor is, as a share of the run."""
_SHOWN: Final = ("Verdict", "Over time", "Nodes and their pods")
_ONLY: Final = (
    "document.querySelectorAll('section').forEach((each) => {"
    f" if (!{[*_SHOWN]}.includes(each.firstChild.textContent)) each.remove(); }});"
    "document.querySelectorAll('figure').forEach((each, n) => n > 3 && each.remove());"
    "document.querySelector('main').style.paddingBottom = '12px'; window.scrollTo(0, 0)"
)
_PLACE: Final = (
    "(() => { const { left, top, width, height } ="
    " document.querySelector('.u-over').getBoundingClientRect();"
    f" return [left + width * {_AT}, top + height / 2]; }})()"
)


async def draw(text: str) -> bytes:
    """Returns a picture of a page, as WebP."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(text, encoding="utf-8", errors="replace")
        async with browser() as chromium, chromium.page(file, width=_WIDTH) as shown:
            await shown.until(ALIVE)
            await shown.look(_ONLY)
            await shown.mouse("mouseMoved", *await shown.look(_PLACE))
            return await _picture(shown)


async def _picture(shown: BrowserPage) -> bytes:
    await shown.painted()
    high = await shown.look("document.body.scrollHeight")
    clip = {"x": 0, "y": 0, "width": _WIDTH, "height": high, "scale": 1}
    found = await shown.call(
        "Page.captureScreenshot", captureBeyondViewport=True, format="webp", quality=80, clip=clip
    )
    return base64.b64decode(found["data"])


def main(arguments: Sequence[str] | None = None, *, path: Path = PICTURE) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hack.reportpicture", description="Draw the picture of a report."
    )
    parser.add_argument("recording", type=Path, help="recording.jsonl.gz of a run, or its folder")
    found = judge(parser.parse_args(arguments).recording)
    path.write_bytes(asyncio.run(draw(page(found, page_script()))))
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
