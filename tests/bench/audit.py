"""Who wrote what, as the API server's audit log has it. Pure.

kwokctl gives all components one account, so who it was is in the agent that a request names, to
which kube-controller-manager's controllers add their own names.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"level": "None"},
    ],
}


class Write(NamedTuple):
    """A kind of write: by whom, and what is done to which resource."""

    who: str
    what: str


def writes(lines: Iterable[bytes]) -> Counter[Write]:
    """How many writes of each kind there are, but for leader election."""
    events = (json.loads(line) for line in lines)
    return Counter(
        Write(_author(event), _deed(event))
        for event in events
        if event["objectRef"].get("namespace") != "kube-system"
    )


def _deed(event: dict[str, Any]) -> str:
    target = event["objectRef"]
    resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
    refused = event["responseStatus"]["code"]
    return f"{event['verb']} {resource}" + (f", HTTP {refused}" if refused >= 400 else "")


def _author(event: dict[str, Any]) -> str:
    """As kube-scheduler, or as kube-controller-manager: ttl-controller."""
    agent = event.get("userAgent", "unknown")
    program, last = agent.partition("/")[0], agent.rpartition("/")[2]
    return f"{program}: {last}" if last.endswith(("-controller", "-collector")) else program
