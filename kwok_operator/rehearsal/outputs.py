"""The files of a rehearsal: a recording is read, what comes of it is written beside it.

    recording.jsonl.gz --> verdict.json, junit.xml, report.html, summary.md

A recording is read while it goes through memory once; the files are put in place whole.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from kwok_operator.errors import SettingsError
from kwok_operator.rehearsal.judge.recording import RecordingReader
from kwok_operator.rehearsal.judge.verdict import Judged, judged, junit_xml, verdict_json
from kwok_operator.rehearsal.report.inmarkdown import in_markdown
from kwok_operator.rehearsal.report.page import page

RECORDING: Final = "recording.jsonl.gz"
VERDICT: Final = "verdict.json"
GITIGNORE: Final = ".gitignore"
LOGS: Final = "logs"
JUNIT: Final = "junit.xml"
REPORT: Final = "report.html"
SUMMARY: Final = "summary.md"
_MADE: Final = (SUMMARY, REPORT, JUNIT, VERDICT, RECORDING)
_CHUNK: Final = 2**16


@contextmanager
def opened(path: Path) -> Iterator[RecordingReader]:
    """A recording, or that of a rehearsal's folder. Raises SettingsError, RecordingError."""
    path = path / RECORDING if path.is_dir() else path
    try:
        with path.open("rb") as file:
            yield RecordingReader(_chunks(file), name=path.name)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}; check the name") from error


def judge(path: Path) -> Judged:
    """What comes of a recording. Raises SettingsError, RecordingError."""
    with opened(path) as recording:
        return judged(recording, name=path.name)


@contextmanager
def begun(folder: Path) -> Iterator[None]:
    """Makes it, without what a run before has left: that would pass for what comes of this one.

    Nobody else plays into it meanwhile. Raises SettingsError.
    """
    with writing(folder):
        place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(place)
        raise SettingsError(
            f"{folder}: another rehearsal plays into it; give --output a folder of its own"
        ) from error
    try:
        with writing(folder):
            _clear(folder)
        yield
    finally:
        os.close(place)


def _clear(folder: Path) -> None:
    """Raises SettingsError where something has the name of a file of ours, and isn't."""
    there = [name for name in _MADE if os.path.lexists(folder / name)]
    if there and RECORDING not in there:  # it comes first, and goes last
        raise SettingsError(
            f"{folder / there[0]}: is there, without the recording of a rehearsal; give --output a"
            " folder of its own, or delete it"
        )
    for name in there:
        (folder / name).unlink()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Makes it, unless it is there. Raises SettingsError, also for what the block can't write."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SettingsError(
            f"{folder}: {error.strerror or error}; give --output a folder that can be written"
        ) from error


@contextmanager
def results(output: Path | None, name: str) -> Iterator[Path]:
    """The folder of a run: `output`, or a new one. Raises SettingsError.

    Where the block fails, no folder stays that was made in it and holds nothing.
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
    """Makes a new folder here whose own .gitignore hides all of it. Raises SettingsError."""
    folder = _named(name)
    _ignore(folder)
    return folder


def _named(name: str) -> Path:
    return Path(f"{name.replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}")


def _ignore(folder: Path) -> None:
    with writing(folder):
        put(folder / GITIGNORE, "*\n")


def write(found: Judged, folder: Path) -> list[Path]:
    """Writes the files; returns their paths. Raises SettingsError."""
    texts = {
        VERDICT: json.dumps(verdict_json(found), indent=2) + "\n",
        JUNIT: junit_xml(found),
        REPORT: page(found),
        SUMMARY: in_markdown(found),
    }
    with writing(folder):
        return [put(folder / name, text) for name, text in texts.items()]


def put(path: Path, text: str) -> Path:
    """Whoever looks at it meanwhile sees the file before or after, never half of one."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8", errors="replace")
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    return path


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
