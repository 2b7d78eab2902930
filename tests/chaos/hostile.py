"""Groups that nobody should have to have beside his own: what they ask for is legal, or nearly."""

from typing import Any, Final

from tests.chaos.webhook import Mode

GREEDY: Final = "greedy"
UNLIMITED: Final = 5_000
FEW: Final = 5
MODES: Final[dict[str, Mode]] = {
    "denied": "deny",
    "protected": "protect",
    "slow": "slow",
    "unlabelled": "strip-label",
    "disowned": "strip-owner",
    "bare": "strip-all",
}
"""Groups whose nodes a webhook spoils."""
STAYS: Final = ("protected",)
"""What is left of a group that is deleted while its nodes can't be is nobody's."""


def specs(*, victims: list[str]) -> dict[str, dict[str, Any]]:
    """By name. `victims` are names of nodes that belong to others, which one of them wants gone."""
    return {
        GREEDY: {"targetSize": FEW},
        "merging": _with_info(kernelVersion=_merge_keys(), osImage="2024-02-30"),
        "bracketed": _with_info(bootID="[" * 3_000, kernelVersion="!!float ''"),
        "wide": _with_blocks(blockSize=17),
        "wide-too": _with_blocks(),
        "refused": {"targetSize": FEW, "template": {"node": {"metadata": {"labels": {"-": "-"}}}}},
        "fat": {
            "targetSize": FEW,
            "template": {"node": {"metadata": {"annotations": {"fat": "x" * 120_000}}}},
        },
        "failing": {
            "targetSize": 50,
            "cloud": {"failures": {"creation": [{"probability": "1"}]}, "retryAfter": "1s"},
        },
        "spot": {
            "targetSize": FEW,
            "cloud": {"interruptions": {"lifetime": {"fixed": "5s"}, "notice": "1s"}},
        },
        "raging": {
            "targetSize": FEW,
            "scaleDown": {"nodesToDelete": [*victims, *(f"nonsense-{n}" for n in range(2_000))]},
        },
        **{name: {"targetSize": FEW} for name in MODES},
    }


def _with_info(**info: str) -> dict[str, Any]:
    return {"targetSize": FEW, "template": {"node": {"status": {"nodeInfo": info}}}}


def _with_blocks(**network: int) -> dict[str, Any]:
    return {
        "targetSize": FEW,
        "template": {"network": {"podCIDR": "fd00::/16", **network}},
    }


def _merge_keys(levels: int = 24) -> str:
    """YAML of a few hundred characters whose work doubles with each level."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, levels)]
    return "\n".join(lines)
