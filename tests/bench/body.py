"""The node that the load generator posts: byte for byte one of the operator's, but for the name.

It is rendered by the operator's own code for a group of its own, so it is as long, is Ready in its
first write and belongs to somebody, which the garbage collector looks at.
"""

import time
from datetime import UTC, datetime
from typing import Final

from kwok_operator.core.template import KubeletEndpoint, render, resolve
from kwok_operator.models.template import GuardTaint, Template
from kwok_operator.settings import DEFAULT_PROVIDER_ID_PREFIX

NAME: Final = "ceiling-name-to-be"


def parts(*, group: str, uid: str, endpoint: KubeletEndpoint, max_pods: int | None) -> list[str]:
    """What stands between the occurrences of the name in the JSON of a node."""
    template = Template.model_validate({"shape": {"maxPods": max_pods}} if max_pods else {})
    rendered = render(
        resolve(template, guard=GuardTaint()),
        group=group,
        uid=uid,
        provider_id_prefix=DEFAULT_PROVIDER_ID_PREFIX,
        endpoint=endpoint,
    )
    now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = rendered.body(NAME, requested_at=now, now=now, ready=True)
    return body.decode().split(NAME)
