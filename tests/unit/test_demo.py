"""What `make demo` prints, and whether its own checks would notice.

- what isn't a terminal gets neither colours nor rewritten lines
- a trace of the pasted machine, and an outdated condition, are found
- a cluster-autoscaler is used where it answers as one, and else it is told why not
"""

import io
from pathlib import Path

import pytest
import yaml

from hack.demo import facts
from hack.demo.autoscaler import NoAutoscaler, find
from hack.demo.kubectl import CHECKOUT
from hack.demo.progress import Progress, Sighting
from hack.demo.screen import Screen

EKS_GROUP = CHECKOUT / "hack" / "demo" / "manifests" / "eks-group.yaml"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "expected"),
    [
        pytest.param(io.StringIO(), {}, "   one\n   three\n   ok: done\n", id="no-terminal"),
        pytest.param(
            Terminal(),
            {},
            "\r\x1b[K   one\r\x1b[K   two\r\x1b[K   three\n\x1b[32m   ok: done\x1b[0m\n",
            id="terminal",
        ),
        pytest.param(
            Terminal(),
            {"NO_COLOR": "1"},
            "\r\x1b[K   one\r\x1b[K   two\r\x1b[K   three\n   ok: done\n",
            id="terminal-without-colours",
        ),
    ],
)
def test_colours_and_rewritten_lines_are_for_terminals(
    stream: io.StringIO, environ: dict[str, str], expected: str
) -> None:
    # The clock stands still, so the second line comes too soon for one that can't be rewritten.
    screen = Screen(stream, environ=environ, clock=lambda: 0.0)
    screen.update("one")
    screen.update("two")
    screen.updated("three")
    screen.passed("done")
    assert stream.getvalue() == expected


@pytest.mark.parametrize(
    ("line", "sighting"),
    [
        ("2 2 1000 1000 True", Sighting(nodes=1000, usable=1000, settled=True)),
        ("2 2 400 390 False", Sighting(nodes=400, usable=390, settled=False)),
        ("2 1 0 0 True", Sighting(nodes=0, usable=0, settled=False)),
        ("2   ", None),
    ],
    ids=["there", "on-the-way", "ready-as-of-the-last-generation", "no-status-yet"],
)
def test_an_old_condition_does_not_end_the_scaling(line: str, sighting: Sighting | None) -> None:
    assert Sighting.parse(line) == sighting


def test_progress_counts_from_start_to_end_in_both_directions() -> None:
    up = Progress.of(250, start=0, end=1000, seconds=2.0)
    down = Progress.of(250, start=1000, end=0, seconds=2.0)
    assert up.line() == "[########........................] 250 of 1,000 nodes, 125 nodes/s"
    assert down.line() == "[########################........] 750 of 1,000 nodes, 375 nodes/s"


def test_a_trace_of_the_pasted_machine_would_be_found() -> None:
    pasted = yaml.safe_load(EKS_GROUP.read_text())["spec"]["template"]["node"]
    clean = {"metadata": {"name": "demo-eks-abcd-000000"}, "spec": {}, "status": {}}
    assert facts.traces(pasted, clean) == []
    instance = "i-0c5d8f2ab1e94a673"
    assert facts.traces(pasted, {**clean, "spec": {"providerID": f"kwok:{instance}"}}) == [instance]


HELP = "echo '--cloud-provider string  Available values: [aws,externalgrpc]' >&2"


def program(directory: Path, text: str, *, mode: int = 0o755) -> Path:
    file = directory / "cluster-autoscaler"
    file.write_text(text)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("status", [0, 2], ids=["ends-with-0", "ends-with-2"])
def test_a_cluster_autoscaler_is_found_by_name_and_on_the_path(tmp_path: Path, status: int) -> None:
    """Older ones end `--help` with 2."""
    file = program(tmp_path, f"#!/bin/sh\n{HELP}\nexit {status}\n")
    assert find({"PATH": str(tmp_path)}) == file
    assert find({"PATH": "/bin", "CLUSTER_AUTOSCALER": str(file)}) == file


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        pytest.param("#!/bin/sh\n", 0o644, "is no program", id="not-executable"),
        pytest.param("#!/bin/nowhere\n", 0o755, "can't be run", id="no-interpreter"),
        pytest.param("\x7fELF", 0o755, "can't be run", id="not-for-this-machine"),
        pytest.param("#!/bin/sh\nsleep 600 & sleep 600\n", 0o755, "in 0.2 s", id="silent"),
        pytest.param("#!/bin/sh\nyes\n", 0o755, "externalgrpc", id="talks-and-talks"),
        pytest.param(
            "#!/bin/sh\necho --cloud-provider: clusterapi\n", 0o755, "externalgrpc", id="other"
        ),
    ],
)
def test_one_that_cannot_be_used_is_told_with_the_reason(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    file = program(tmp_path, text, mode=mode)
    # Long enough where nothing is to be waited for.
    seconds = 0.2 if "sleep" in text else 30
    with pytest.raises(NoAutoscaler) as refused:
        find({"PATH": "/bin:/usr/bin", "CLUSTER_AUTOSCALER": str(file)}, seconds=seconds)
    assert str(file) in str(refused.value)
    assert why in str(refused.value)


def test_without_one_the_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoAutoscaler, match="PATH"):
        find({"PATH": str(tmp_path)})
