"""The operator's wall clock jumps, and nobody else's does."""

from pathlib import Path

from tests.chaos.replicas import off_by
from tests.chaos.world import NOT_TOO_QUICK, World

HOUR = 3600.0


def test_clock_jumps_in_the_middle_of_a_scale(world: World, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    world.start(NOT_TOO_QUICK, environ=off_by(clock))
    size = 0
    for jump in (HOUR, 0.0, -HOUR, 0.0):
        size += world.scope.nodes // 4
        with world.scaling(to=size):
            clock.write_text(str(jump))
        world.converges()
    with world.scaling(to=10):
        clock.write_text(str(HOUR))
    world.converges()
    world.is_quiet()
