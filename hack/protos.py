"""The shim's messages in Python, generated from the .proto files beside them.

    python -m hack.protos            write *_pb2.py and *_pb2.pyi
    python -m hack.protos --check    exit with 1 if one of them is stale, missing or left over

What is generated is committed, so that using the package needs no compiler; nobody edits it. It
depends on the .proto files and on the version of grpcio-tools alone, not on where this runs.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.generated import bring_up_to_date
from hack.generated import stale as stale_files

ROOT: Final = Path(__file__).resolve().parents[1]
DIRECTORY: Final = Path("kwok_operator/shim/proto")
_GENERATED: Final = ("*_pb2.py", "*_pb2.pyi")


def generate(root: Path = ROOT) -> dict[str, bytes]:
    """Name and content of each file that belongs beside the .proto files under `root`.

    Raises subprocess.CalledProcessError where the compiler refuses them; it says why on stderr.
    """
    # Names relative to the root: they become a part of what is generated, and its imports.
    sources = sorted(path.relative_to(root) for path in (root / DIRECTORY).glob("*.proto"))
    with tempfile.TemporaryDirectory() as output:
        subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", "--proto_path=."),
                *(f"--python_out={output}", f"--pyi_out={output}"),
                *map(str, sources),
            ],
            cwd=root,
            check=True,
        )
        return _files(Path(output))


def stale(generated: Mapping[str, bytes], root: Path = ROOT) -> list[str]:
    """The names of files that are missing, differ or belong to no .proto file."""
    return stale_files(generated, _files(root))


def _files(root: Path) -> dict[str, bytes]:
    paths = [path for pattern in _GENERATED for path in (root / DIRECTORY).glob(pattern)]
    return {path.name: path.read_bytes() for path in paths}


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hack.protos", description="Generate the shim's messages."
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a file is stale")
    check: bool = parser.parse_args(arguments).check
    try:
        generated = generate(root)
    except subprocess.CalledProcessError as error:
        print(f"generating {DIRECTORY} failed: protoc ended with {error.returncode}; its message"
              " is above", file=sys.stderr)  # fmt: skip
        return 1
    names = stale(generated, root)
    if check and names:
        print(
            f"stale in {DIRECTORY}: {', '.join(names)}; run `python -m hack.protos` and commit"
            " the result",
            file=sys.stderr,
        )
        return 1
    bring_up_to_date(names, generated, root / DIRECTORY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
