"""The files of a rehearsal: reads a recording, and writes its verdict and reports beside it.

    recording.jsonl.gz --> verdict.json, junit.xml, report.html, summary.md, trace.json.gz

A recording is read once, as a stream. Other files are replaced at once, and together: readers never
see half a file, and no file is replaced if another can't be written. The folder is locked
meanwhile.
"""

import errno
import fcntl
import json
import os
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from kwok_operator.causes.model import Chain
from kwok_operator.causes.recorded import Explainer, Wanted, every_pod
from kwok_operator.errors import SettingsError
from kwok_operator.rehearsal.judge.recording import (
    EndLine,
    RecordedLine,
    RecordingReader,
    Skips,
    no_line,
)
from kwok_operator.rehearsal.judge.verdict import (
    Judged,
    WaitReasons,
    judged,
    junit_xml,
    verdict_json,
)
from kwok_operator.rehearsal.report.inmarkdown import in_markdown
from kwok_operator.rehearsal.report.livepage import PageScript
from kwok_operator.rehearsal.report.page import page
from kwok_operator.rehearsal.report.runtrace import RunTrace

RECORDING: Final = "recording.jsonl.gz"
VERDICT: Final = "verdict.json"
GITIGNORE: Final = ".gitignore"
LOGS: Final = "logs"
JUNIT: Final = "junit.xml"
REPORT: Final = "report.html"
SUMMARY: Final = "summary.md"
TRACE: Final = "trace.json.gz"
_MADE: Final = (TRACE, SUMMARY, REPORT, JUNIT, VERDICT, RECORDING)
_CHUNK: Final = 2**16
GZIP: Final = 31
"""zlib's number for gzip with a header; it has no time in it, so a trace gets the same bytes."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_LIVE: Final = Path(__file__).parent / "report" / "live"
_SCRIPTS: Final = ("lanes.js", "report.js")


@contextmanager
def opened(path: Path) -> Iterator[RecordingReader]:
    """Opens a recording, or the one in a rehearsal's folder. Raises SettingsError or
    RecordingError.
    """
    path = path / RECORDING if path.is_dir() else path
    try:
        with path.open("rb") as file:
            yield RecordingReader(_chunks(file), name=path.name)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}; check the name") from error


def judge(path: Path) -> Judged:
    """Judges a recording, explains why pods waited, and makes its trace, reading it once. Raises
    SettingsError or RecordingError.
    """
    pack: Any = zlib.compressobj(wbits=GZIP)
    packed: list[bytes] = []
    with opened(path) as recording:
        reasons = WaitReasons(recording.header)
        trace = RunTrace(
            recording.header.scenario, lambda text: packed.append(pack.compress(text.encode()))
        )
        verdict = judged(recording, name=path.name, followers=(reasons, trace))
    return replace(reasons.added_to(verdict), trace=(*packed, pack.flush()))


def chains(
    path: Path,
    *,
    wanted: Wanted = every_pod,
    skips: Skips = no_line,
    on_early_end: Callable[[float], None] | None = None,
) -> Iterator[Chain]:
    """Yields the chains of causes of the `wanted` pods of a recording; `skips` selects lines to
    leave out. If the recording lacks the run's end, calls `on_early_end` with the time of its last
    line. Raises SettingsError or RecordingError.
    """
    line: RecordedLine | None = None
    with opened(path) as recording:
        explainer = Explainer(recording.header, wanted=wanted)
        for line in recording.lines(skips):
            yield from explainer.apply(line)
        yield from explainer.finish(recording.now)
    if on_early_end is not None and not isinstance(line, EndLine):
        on_early_end(recording.now)


@contextmanager
def begun(folder: Path) -> Iterator[None]:
    """Makes the folder and locks it while the block runs.

    Deletes the files of an earlier run, which could be mistaken for this run's. Raises
    SettingsError.
    """
    with locked(folder):
        with writing(folder):
            _clear(folder)
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder, and locks it against other rehearsals and reports while the block runs.
    Deletes half-written files that killed processes have left. Raises SettingsError.
    """
    with writing(folder):
        place = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems can't lock a folder
            _lock(place, folder)
        with writing(folder):
            for half in (half for name in _MADE for half in folder.glob(f".{name}.*new")):
                half.unlink()
        yield
    finally:
        os.close(place)


def _lock(place: int, folder: Path) -> None:
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SettingsError(
            f"{folder}: another rehearsal or report writes into it; give --output a folder of its"
            " own"
        ) from error


def _clear(folder: Path) -> None:
    """Deletes the files of an earlier run. Raises SettingsError if they seem not to be a
    rehearsal's.
    """
    there = [name for name in _MADE if os.path.lexists(folder / name)]
    if there and RECORDING not in there:  # the recording is written first, and deleted last
        raise SettingsError(
            f"{folder / there[0]}: is there, without the recording of a rehearsal; give --output a"
            " folder of its own, or delete it"
        )
    for name in there:
        (folder / name).unlink()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Makes the folder if needed. Turns an OSError in the block into a SettingsError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        where = "with more room" if error.errno in _NO_ROOM else "that can be written"
        raise SettingsError(
            f"{folder}: {error.strerror or error}; give --output a folder {where}"
        ) from error


@contextmanager
def results(output: Path | None, name: str) -> Iterator[Path]:
    """Yields the folder for a run: `output`, or one with a new name. Raises SettingsError.

    If the block fails, removes those empty folders that didn't exist before.
    """
    folder = output or _named(name)
    new = [each for each in (folder / LOGS, folder, *folder.parents) if not each.exists()]
    try:
        if output is None:
            _ignore(folder)
        yield folder
    except BaseException:
        with suppress(OSError):
            for each in new:
                if each == folder and os.listdir(each) == [GITIGNORE]:
                    (each / GITIGNORE).unlink()
                each.rmdir()
        raise


def ignored_folder(name: str) -> Path:
    """Makes a new folder in the working folder, with a .gitignore for all of it. Raises
    SettingsError.
    """
    folder = _named(name)
    _ignore(folder)
    return folder


def _named(name: str) -> Path:
    return Path(f"{name.replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}")


def _ignore(folder: Path) -> None:
    with writing(folder):
        put(folder / GITIGNORE, "*\n")


def write(verdict: Judged, folder: Path) -> list[Path]:
    """Writes verdict, reports and trace of a run, and returns their paths. The caller has locked
    `folder`. Raises SettingsError.
    """
    texts = {
        VERDICT: json.dumps(verdict_json(verdict), indent=2) + "\n",
        JUNIT: junit_xml(verdict),
        REPORT: page(verdict, page_script()),
        SUMMARY: in_markdown(verdict),
    }
    with writing(folder):
        return _replaced(folder, {**_encoded(texts), TRACE: verdict.trace})


def page_script() -> PageScript:
    """Reads the script files that are embedded in report.html."""
    vendored = _LIVE / "uplot"
    return PageScript(
        library=(vendored / "uPlot.iife.min.js").read_text(encoding="utf-8"),
        style=(vendored / "uPlot.min.css").read_text(encoding="utf-8"),
        licence=(vendored / "LICENSE").read_text(encoding="utf-8"),
        own="".join((_LIVE / name).read_text(encoding="utf-8") for name in _SCRIPTS),
    )


def put(path: Path, text: str) -> Path:
    """Writes a file in one step: readers see either the old content or the new one."""
    return _replaced(path.parent, _encoded({path.name: text}))[0]


def _encoded(texts: Mapping[str, str]) -> dict[str, Iterable[bytes]]:
    return {name: (text.encode(errors="replace"),) for name, text in texts.items()}


def _replaced(folder: Path, contents: Mapping[str, Iterable[bytes]]) -> list[Path]:
    """Writes all files under temporary names, and only then renames them. Returns their paths."""
    new = {folder / name: folder / f".{name}.{uuid.uuid4().hex}.new" for name in contents}
    try:
        for half, content in zip(new.values(), contents.values(), strict=True):
            with half.open("xb") as file:
                file.writelines(content)
        for path, whole in new.items():
            os.replace(whole, path)
    finally:
        for half in new.values():
            half.unlink(missing_ok=True)
    return [*new]


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
