"""What the package has of others' code that is no Python distribution, from its README.md.

    python -m hack.vendored FILE    # adds it to the components of a CycloneDX list

Audits and lists of Python packages don't see such files. Whether their sums are those that are
noted is for a test of the report.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = (ROOT / "kwok_operator/rehearsal/report/live/uplot",)
_NOTED: Final = re.compile(r"npm package `(\S+)`, version (\d[\w.]*), .* (\S+): see LICENSE\.")


class Vendored(NamedTuple):
    name: str
    version: str
    licence: str
    """As an SPDX identifier."""

    @property
    def purl(self) -> str:
        return f"pkg:npm/{self.name}@{self.version}"


def vendored(folder: Path) -> Vendored:
    """Raises ValueError unless the README.md notes name, version and licence."""
    noted = _NOTED.search((folder / "README.md").read_text())
    if noted is None:
        raise ValueError(f"{folder / 'README.md'} doesn't name an npm package with its licence")
    return Vendored(*noted.groups())


def component(part: Vendored) -> dict[str, object]:
    return {
        "type": "library",
        "bom-ref": part.purl,
        "name": part.name,
        "version": part.version,
        "licenses": [{"license": {"id": part.licence}}],
        "purl": part.purl,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    (name,) = sys.argv[1:] if arguments is None else arguments
    listed = json.loads(Path(name).read_text())
    listed.setdefault("components", []).extend(component(vendored(each)) for each in FOLDERS)
    Path(name).write_text(json.dumps(listed, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
