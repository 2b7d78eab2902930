"""The results on disk: one JSON file for a run, whole after every case.

{"format": 1, "machine": {...}, "versions": {...}, "cases": {NAME: {"title", "began", "seconds",
 "options", "notes", "measures": [...]}}}
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from kwok_operator import __version__
from kwok_operator.controlplane import Tools
from tests.bench.measures import Measure, gathered, table

FILE: Final = "result.json"
TABLE: Final = "table.txt"
FORMAT: Final = 1
_LIBRARIES = ("kopf", "aiohttp", "uvloop", "pydantic", "protobuf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one case has found."""

    title: str
    began: str
    seconds: float
    options: Mapping[str, Any]
    notes: Sequence[str]
    measures: Sequence[Measure]

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "began": self.began,
            "seconds": round(self.seconds, 1),
            "options": dict(self.options),
            "notes": list(self.notes),
            "measures": [measure.as_json() for measure in gathered(self.measures)],
        }

    def as_text(self, name: str) -> str:
        """Title, table and notes."""
        lines = [f"{name}: {self.title} ({self.seconds / 60:.0f} min)", ""]
        if self.measures:
            lines.append(table(gathered(self.measures)))
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes), ""])


def machine() -> dict[str, Any]:
    """What this machine is, and how busy it was before."""
    memory = _field(Path("/proc/meminfo"), "MemTotal").split()
    return {
        "system": platform.platform(),
        "processor": _field(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory[0]) / 2**20, 1) if memory else None,
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions(tools: Tools) -> dict[str, str]:
    """Versions of all that takes part."""
    return {
        "kwok-operator": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        **{name: f"v{found}" for name, found in tools.versions.items()},
    }


def store(directory: Path, *, facts: Mapping[str, Any], case: str, found: Found) -> None:
    """Put a case into the results file; the others that are there stay."""
    file = directory / FILE
    results: dict[str, Any] = {"format": FORMAT, "cases": {}}
    if file.exists():
        results = json.loads(file.read_text(encoding="utf-8"))
    results |= facts
    results["cases"][case] = found.as_json()
    fresh = file.with_suffix(".tmp")
    fresh.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    fresh.replace(file)


def load(file: Path) -> list[Measure]:
    """All measures of a results file."""
    results = json.loads(file.read_text(encoding="utf-8"))
    if results.get("format") != FORMAT:
        raise ValueError(f"reading {file}: format {results.get('format')!r}, not {FORMAT}")
    return [
        Measure.from_json(each) for case in results["cases"].values() for each in case["measures"]
    ]


def heading(facts: Mapping[str, Any]) -> str:
    """Machine and versions, in two lines."""
    return "\n".join(
        ", ".join(f"{key} {value}" for key, value in facts[part].items() if value)
        for part in ("machine", "versions")
    )


def _field(file: Path, name: str) -> str:
    if not file.exists():
        return ""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def _commit() -> str:
    """The commit of the checkout, and whether there are changes on top of it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or f"unknown ({sys.platform})"
