"""Pictures of the simulated cloud, made from the samples.

    python -m hack.cloudpictures            write docs/img/cloud-*.svg
    python -m hack.cloudpictures --check    exit with 1 if one is stale, missing or left over

They are made by the code that the operator runs, so they show what the samples do: those who edit a
sample, or the way numbers are drawn, make them anew.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.cloudpictures import drawing
from hack.cloudpictures.rehearsal import rehearse
from hack.cloudpictures.scenes import SCENES, Scene, manifests
from hack.generated import pictures

DIRECTORY: Final = Path(__file__).resolve().parents[2] / "docs" / "img"
_PATTERN: Final = "cloud-*.svg"


def picture(scene: Scene) -> str:
    """The SVG of a scene."""
    tracks = rehearse(manifests(scene.sample), scene.wishes, end=scene.end)
    return drawing.draw(scene.title, tracks, end=scene.end, marks=scene.marks)


def generate() -> dict[str, bytes]:
    """Name and content of each file."""
    return {f"cloud-{scene.sample}.svg": picture(scene).encode() for scene in SCENES}


def main(arguments: Sequence[str] | None = None, *, directory: Path = DIRECTORY) -> int:
    return pictures(
        arguments,
        program="hack.cloudpictures",
        page="docs/cloud.md",
        generate=generate,
        pattern=_PATTERN,
        directory=directory,
    )


if __name__ == "__main__":
    sys.exit(main())
