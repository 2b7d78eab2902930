"""Files that are generated and committed: which of them are stale, and how they come up to date.

How they are generated is for others to say: manifests.py, protos.py, the pictures.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def pictures(
    arguments: Sequence[str] | None,
    *,
    program: str,
    page: str,
    generate: Callable[[], dict[str, bytes]],
    pattern: str,
    directory: Path,
) -> int:
    """A program that draws those of a page, or checks that they are up to date."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}", description=f"Draw the pictures of {page}."
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a file is stale")
    options = parser.parse_args(arguments)
    made = generate()
    names = stale(made, {path.name: path.read_bytes() for path in directory.glob(pattern)})
    if options.check and names:
        print(f"stale: {', '.join(names)}; run `python -m {program}`", file=sys.stderr)
        return 1
    if not options.check:
        bring_up_to_date(names, made, directory)
        for name in names:
            print(f"wrote {name}")
    return 0
