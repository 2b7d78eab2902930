"""`kwok-operator cloud-config`: what to give cluster-autoscaler so that it finds the shim.

The file for --cloud-config goes to standard output; the flags that go with it stand in it as
comments, so that one redirection keeps both.
"""

from typing import Final

import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.shim.settings import Address, Certificates

TIMEOUT: Final = "5s"

_FLAGS: Final = f"""\
# For cluster-autoscaler's flag --cloud-config. The flags that go with it:
#
#   --cloud-provider=externalgrpc
#   --cloud-config=THIS-FILE
#   --balancing-ignore-label={NODE_GROUP_LABEL}
#
# Without the last one, --balance-similar-node-groups finds no two groups alike: each node carries
# the name of its group.
"""


def render(listen: Address, client: Certificates | None) -> str:
    """The file; `client` are the client's files, for mutual TLS."""
    config: dict[str, str] = {"address": str(listen), "grpc_timeout": TIMEOUT}
    if client is not None:
        config |= {"cert": client.cert, "key": client.key, "cacert": client.cacert}
    return _FLAGS + yaml.safe_dump(config, sort_keys=False)
