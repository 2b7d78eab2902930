"""Ports for what tests start, which no other process of the run is given.

A port that the system says is free can be given to another worker before it is made use of. Then
that one's operator answers for ours, which has ended: so each worker has a range of its own. The
lower half of it is for control planes.
"""

import itertools
import os
import socket
from contextlib import suppress

from kwok_operator.controlplane.settings import PORTS_VARIABLE

_NUMBERS = itertools.cycle(range(500, 1_000))


def free_port() -> int:
    """A port of this machine where nobody listens, and that was not given for a while."""
    # Asked for here: a worker has its range after its conftests were imported.
    first = int(os.environ.get(PORTS_VARIABLE) or 20_000)
    for number in itertools.islice(_NUMBERS, 500):
        with suppress(OSError), socket.create_server(("", first + number)):
            return first + number
    raise RuntimeError(f"somebody listens on each port from {first + 500} to {first + 999}")


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"
