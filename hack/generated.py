"""Files that are generated and committed: which of them are stale, and how they come up to date.

How they are generated is for manifests.py and protos.py to say.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path


def stale(generated: Mapping[str, bytes], found: Mapping[str, bytes]) -> list[str]:
    """The names of files that are missing, differ or should not be there."""
    names = sorted(generated.keys() | found.keys())
    return [name for name in names if generated.get(name) != found.get(name)]


def bring_up_to_date(names: Iterable[str], generated: Mapping[str, bytes], directory: Path) -> None:
    """Writes these files as they were generated; deletes those that were not."""
    for name in names:
        path = directory / name
        if name in generated:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(generated[name])
        else:
            path.unlink()
