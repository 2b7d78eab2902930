"""What runs in the image besides our own code, audited as far as that goes without the internet.

    python -m hack.audit                      # pins and licences; needs nothing but .venv
    python -m hack.audit --vulnerabilities    # asks the package index for known vulnerabilities too

What runs is what kwok-operator requires, and what that requires in turn: for each of them
constraints.txt has an exact version, which is installed, and a licence that lets everybody ship it.
The versions are pinned and not their hashes: an index that is not trusted is not covered by this.

An index that has no word on a package is told as an error. No answer is no good news.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from hack.vendored import FOLDERS, Vendored, vendored

ROOT: Final = Path(__file__).resolve().parents[1]
CONSTRAINTS: Final = ROOT / "constraints.txt"
PYPROJECT: Final = ROOT / "pyproject.toml"

ALLOWED_LICENCES: Final = frozenset(
    """
    0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause ISC MIT MPL-2.0 PSF-2.0 Python-2.0
    """.split()
)
_IN_OTHER_WORDS: Final = {
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "modified bsd license": "BSD-3-Clause",
    "python software foundation license": "PSF-2.0",
}
_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)")
_WORD: Final = re.compile(r"[^\s()]+")


def normal(name: str) -> str:
    """A distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(pyproject: str) -> list[str]:
    """What the project itself requires to run, as its pyproject.toml says."""
    return [str(line) for line in tomllib.loads(pyproject)["project"]["dependencies"]]


def runtime(requirements: Iterable[str]) -> dict[str, Distribution]:
    """What these requirements mean in the end, by name; as it is installed here.

    Raises PackageNotFoundError where something is missing.
    """
    found: dict[str, Distribution] = {}
    waiting = list(_applying(requirements, extra=""))
    asked: set[tuple[str, str]] = set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) not in asked:
            asked.add((name, extra))
            found[name] = distribution(name)
            waiting += _applying(found[name].requires or (), extra=extra)
    return found


def _applying(requirements: Iterable[str], *, extra: str) -> Iterator[tuple[str, str]]:
    """Name and extra of each requirement whose marker is true here."""
    for wanted in map(Requirement, requirements):
        if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
            yield from ((normal(wanted.name), each) for each in ("", *wanted.extras))


def pins(text: str) -> dict[str, str]:
    """Exact versions by name; raises ValueError for a line that is anything else."""
    found = {}
    for line in text.split("\n"):
        if not line:
            continue
        match = _PIN.fullmatch(line)
        if match is None:
            raise ValueError(f"constraints.txt: {line!r} is not NAME==VERSION")
        if normal(match[1]) in found:
            raise ValueError(f"constraints.txt: {match[1]} stands there twice")
        found[normal(match[1])] = match[2]
    return found


def problems(found: dict[str, Distribution], pinned: dict[str, str]) -> Iterator[str]:
    """A sentence for each thing that isn't as it should be."""
    for name, installed in sorted(found.items()):
        if name not in pinned:
            yield f"{name} has no line in constraints.txt"
        elif pinned[name] != installed.version:
            yield f"{name} is {installed.version} here, and constraints.txt has {pinned[name]}"
        licences = licences_of(installed)
        if not licences or not licences <= ALLOWED_LICENCES:
            told = ", ".join(sorted(licences)) or "nothing"
            yield f"{name}: its licence is {told}; if that is allowed, list it in hack/audit.py"


def problems_of_vendored(parts: Iterable[Vendored], pyproject: str) -> Iterator[str]:
    """A sentence for each licence of others' code that may not be shipped, or isn't declared."""
    declared = set(_WORD.findall(str(tomllib.loads(pyproject)["project"]["license"])))
    for part in parts:
        if part.licence not in ALLOWED_LICENCES:
            yield f"{part.name}: its licence {part.licence} isn't listed in hack/audit.py"
        if part.licence not in declared:
            yield f"{part.name}: pyproject.toml's license doesn't name {part.licence}"


def licences_of(installed: Distribution) -> set[str]:
    """The licences in the metadata: by expression, else by classifier, else by the first line."""
    metadata = installed.metadata.json
    expression = metadata.get("license_expression")
    if expression:
        return set(_WORD.findall(str(expression))) - {"AND", "OR", "WITH"}
    named = [
        line.rpartition(" :: ")[2]
        for line in metadata.get("classifier", ())
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    if not named:
        named = [line for line in str(metadata.get("license", "")).splitlines()[:1] if line]
    return {_IN_OTHER_WORDS.get(name.lower(), name) for name in named}


def vulnerabilities(found: dict[str, Distribution]) -> Iterator[str]:
    """What the index knows about these versions, and that it knows nothing where that is so."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        lines = (f"{name}=={each.version}" for name, each in sorted(found.items()))
        requirements.write("\n".join(lines))
        requirements.flush()
        command = ("pip_audit", "--no-deps", "--disable-pip", "--progress-spinner=off")
        done = subprocess.run(
            [sys.executable, "-m", *command, "--format=json", f"--requirement={requirements.name}"],
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        answer = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        yield f"known vulnerabilities could not be looked up: {last}"
        return
    unknown = [entry["name"] for entry in answer if "skip_reason" in entry]
    if unknown:
        yield (
            f"known vulnerabilities of {len(unknown)} of {len(found)} packages could not be looked"
            f" up: this package index has no data on {', '.join(unknown[:3])}"
            f"{', ...' if len(unknown) > 3 else ''}"
        )
    for entry in answer:
        for known in entry.get("vulns", ()):
            fixed = ", ".join(known["fix_versions"]) or "no version"
            yield f"{entry['name']} {entry['version']} has {known['id']}, fixed in {fixed}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.audit", description="Audit what runs.")
    parser.add_argument(
        "--vulnerabilities", action="store_true", help="ask the package index for known ones too"
    )
    online: bool = parser.parse_args(arguments).vulnerabilities
    try:
        found = runtime(required(PYPROJECT.read_text()))
        told = list(problems(found, pins(CONSTRAINTS.read_text())))
        parts = [*map(vendored, FOLDERS)]
        told += problems_of_vendored(parts, PYPROJECT.read_text())
    except (PackageNotFoundError, ValueError) as error:
        print(f"auditing: {error}", file=sys.stderr)
        return 1
    print(f"{len(found)} packages: pins and licences looked at")
    if online:
        for part in parts:
            print(f"{part.purl}: known vulnerabilities are not looked up, it is no Python package")
        told += vulnerabilities(found)
    for line in told:
        print(line, file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
