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

_FIRST = int(os.environ.get(PORTS_VARIABLE) or 20_000) + 500
_PORTS = itertools.cycle(range(_FIRST, _FIRST + 500))


def free_port() -> int:
    """A port of this machine where nobody listens, and that was not given for a while."""
    for port in itertools.islice(_PORTS, 500):
        with suppress(OSError), socket.create_server(("", port)):
            return port
    raise RuntimeError(f"somebody listens on each port from {_FIRST} to {_FIRST + 499}")


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"
