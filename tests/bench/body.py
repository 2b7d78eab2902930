"""What the load generator sends for a node: byte for byte the operator's, but for name and uid.

It is rendered by the operator's own code for a group of its own, so it is as long, is Ready in its
first write and belongs to somebody, which the garbage collector looks at. So is the patch that
takes the taint of new nodes off.
"""

import json
import time
from datetime import UTC, datetime
from typing import Final

from kwok_operator import constants
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.template import KubeletEndpoint, render, resolve
from kwok_operator.nodegroups.usable import untaint
from kwok_operator.settings import DEFAULT_PROVIDER_ID_PREFIX

NAME: Final = "ceiling-name-to-be"
UID: Final = "ceiling-uid-to-be"


def parts(
    *, group: str, uid: str, endpoint: KubeletEndpoint, max_pods: int | None, nodes: int
) -> list[str]:
    """What stands between the occurrences of the name in the JSON of each of so many nodes."""
    template = Template.model_validate({"shape": {"maxPods": max_pods}} if max_pods else {})
    rendered = render(
        resolve(template, guard=GuardTaint()),
        group=group,
        uid=uid,
        provider_id_prefix=DEFAULT_PROVIDER_ID_PREFIX,
        endpoint=endpoint,
        nodes=nodes,
    )
    now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = rendered.body(NAME, requested_at=now, now=now, ready=True)
    return body.decode().split(NAME)


def patch_parts(parts: list[str]) -> list[str]:
    """What stands around the uid in the JSON Patch that lets pods onto such a node."""
    node = json.loads(NAME.join(parts))
    node["metadata"]["uid"] = UID
    taint = {"key": constants.NOT_READY_TAINT_KEY, "effect": constants.NOT_READY_TAINT_EFFECT}
    # The API server puts it behind those that are there.
    node["spec"]["taints"].append(taint)
    return json.dumps(untaint(node), separators=(",", ":")).split(UID)
