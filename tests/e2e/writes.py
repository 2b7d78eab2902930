"""Counting what is written, by the API server and by the operator."""

import re
from collections import Counter
from typing import NamedTuple

from kwok_operator.constants import KIND, PLURAL
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

READS = {"GET", "LIST", "WATCH"}
_SERVED = re.compile(r"^apiserver_request_total{(.*)} (\S+)$", re.MULTILINE)
_SENT = re.compile(r"^kwok_operator_api_request_duration_seconds_count{(.*)} (\S+)$", re.MULTILINE)


class Traces(NamedTuple):
    """What would differ if anything had been written."""

    groups: dict[str, str]
    nodes: dict[str, str]
    events: set[str]
    served: Counter[tuple[str, ...]]
    sent: Counter[tuple[str, ...]]


def counts(pattern: re.Pattern[str], text: str, *labels: str) -> Counter[tuple[str, ...]]:
    """The values of a metric by these labels; dry runs, which write nothing, are left out."""
    found: Counter[tuple[str, ...]] = Counter()
    for listed, value in pattern.findall(text):
        label = dict(re.findall(r'(\w+)="([^"]*)"', listed))
        if not label.get("dry_run"):
            found[tuple(label[name] for name in labels)] += int(float(value))
    return found


def served(kubectl: Kubectl) -> Counter[tuple[str, ...]]:
    """Writes that the API server has served: all of groups, creations and deletions of nodes."""
    metrics = kubectl.api.text("/metrics")
    return Counter(
        {
            key: count
            for key, count in counts(_SERVED, metrics, "verb", "resource", "subresource").items()
            if (key[1] == PLURAL and key[0] not in READS)
            or (key[1] == "nodes" and key[0] in ("POST", "DELETE", "DELETECOLLECTION"))
        }
    )


def sent(operator: Process, *, reads: bool = False) -> Counter[tuple[str, ...]]:
    """Requests that the operator has made."""
    requests = counts(_SENT, operator.get("/metrics")[1], "method", "code")
    assert requests, "the operator counts its requests"
    return Counter({k: n for k, n in requests.items() if (k[0] in READS) == reads})


def looks(operator: Process) -> float:
    """How often the operator has looked at a group."""
    text = operator.get("/metrics")[1]
    found = re.search(r"^kwok_operator_reconcile_duration_seconds_count (\S+)$", text, re.MULTILINE)
    assert found, "the operator counts its passes"
    return float(found[1])


def _turns(operator: Process) -> float:
    """How often the operator's event loop has woken up: ten times a second, if it runs."""
    text = operator.get("/metrics")[1]
    found = re.search(r"^kwok_operator_event_loop_lag_seconds_count (\S+)$", text, re.MULTILINE)
    assert found, "the operator counts its wake-ups"
    return float(found[1])


def traces(kubectl: Kubectl, operator: Process, *, attempts: bool = True) -> Traces:
    """What there is now; without `attempts` what was sent and wrote nothing may go on."""
    groups, nodes = kubectl.json("get", PLURAL), kubectl.json("get", "nodes")
    events = kubectl.json("get", "events", f"--field-selector=involvedObject.kind={KIND}")
    return Traces(
        groups={g["metadata"]["name"]: g["metadata"]["resourceVersion"] for g in groups["items"]},
        nodes={n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes["items"]},
        events={f"{e['metadata']['name']} {e.get('count')}" for e in events["items"]},
        served=served(kubectl),
        sent=sent(operator) if attempts else Counter(),
    )


def settled(kubectl: Kubectl, operator: Process, *, attempts: bool = True) -> Traces:
    """Once two looks show the same between which the operator ran for two seconds: counts of status
    may wait one second.
    """
    seen = [traces(kubectl, operator, attempts=attempts)]

    def look() -> tuple[Traces, Traces]:
        begun = _turns(operator)
        eventually(
            lambda: _turns(operator) >= begun + 20, describe="the operator runs", interval=0.5
        )
        seen.append(traces(kubectl, operator, attempts=attempts))
        return seen[-2], seen[-1]

    eventually(look, lambda pair: pair[0] == pair[1], describe="the cluster is quiet")
    return seen[-1]
