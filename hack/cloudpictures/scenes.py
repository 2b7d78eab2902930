"""Which sample is played, for how long, and what is asked for meanwhile."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cloudpictures.rehearsal import Wish
from kwok_operator.constants import KIND, POOL_KIND

SAMPLES: Final = Path(__file__).resolve().parents[2] / "deploy" / "samples"


@dataclass(frozen=True, slots=True)
class Scene:
    """`end` is in seconds; `wishes` come on top of the sample's own targets."""

    sample: str
    title: str
    end: int
    wishes: tuple[Wish, ...] = ()
    marks: dict[int, str] = field(default_factory=dict)
    """What somebody does, by second."""


SCENES: Final = (
    Scene("slow-boot", "Slow boots: 12 machines are asked for", 180),
    Scene(
        "sold-out-zone",
        "A zone that is sold out: 8 machines are asked for, 3 are left",
        60,
        # As cluster-autoscaler does it, with its loop of 10 s.
        (
            Wish(0, "sample-zone-a", 8),
            Wish(10, "sample-zone-a", 3),
            Wish(10, "sample-zone-b", 5),
        ),
        {10: "the next loop"},
    ),
    Scene(
        "shared-quota",
        "A quota of 64 vCPUs that three groups share",
        150,
        (Wish(30, "sample-quota-web", 8), Wish(70, "sample-quota-batch", 2)),
        {30: "web: 0 to 8", 70: "batch: 6 to 2"},
    ),
    Scene("spot", "A spot market: 10 machines, for 15 minutes", 900),
    Scene(
        "zombie-nodes",
        "Zombies: 2 never joins, 5 is never Ready, 8 doesn't go",
        180,
        (Wish(60, "sample-zombies", 6),),
        {60: "9 to 6"},
    ),
    Scene("late-gpu", "GPUs that come late", 180),
)


def manifests(sample: str) -> list[dict[str, Any]]:
    """The groups and pools of a sample."""
    text = (SAMPLES / f"{sample}.yaml").read_text(encoding="utf-8")
    return [each for each in yaml.safe_load_all(text) if each["kind"] in (KIND, POOL_KIND)]
