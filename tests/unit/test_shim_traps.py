"""The traps of cluster-autoscaler's externalgrpc protocol, one after the other: what is read.

Requests are the bytes that a cluster-autoscaler (CA) of some version sends, and answers are read as
that version reads them.

What is written is in test_shim_stories.py.
"""

from typing import Any

import pytest

from kwok_operator.cli.main import main as cli
from kwok_operator.nodegroups.client import Group
from kwok_operator.shim import messages
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.fakes.nodebytes import decode_node
from tests.fakes.protobuf import fields, put
from tests.fakes.shimcalls import TEMPLATE, Shim, with_template
from tests.fakes.shimstore import group_of, node_of

SECOND = 10**9
ANNOTATION = "cluster-autoscaler.kwok.nodegroup/name"


def entry(key: str, value: str) -> bytes:
    """One entry of a map."""
    return put(1, key) + put(2, value)


def sent_node(name: str, provider_id: str, annotations: dict[str, str] | None = None) -> bytes:
    """A node as CA sends it."""
    sent = put(1, provider_id) + put(2, name) + put(3, entry("pool", "a"))
    return sent + b"".join(put(4, entry(*each)) for each in (annotations or {}).items())


class TestOnTheWire:
    def test_the_groups_and_their_sizes(self) -> None:
        bounds = {"minSize": 1, "maxSize": 300, "gpuLabel": "a.b/gpu"}
        shim = Shim(group_of(targetSize=200, autoscaling=bounds))
        assert shim.raw("Refresh", b"") == b""
        told = fields(fields(shim.raw("NodeGroups", b""))[1][0])
        assert (told[1], told[2], told[3]) == ([b"web"], [1], [300])
        assert shim.raw("NodeGroupTargetSize", put(1, "web")) == put(1, 200)
        assert shim.raw("GPULabel", b"") == put(1, "a.b/gpu")
        assert shim.raw("Cleanup", b"") == b""

    def test_an_instance_and_whose_it_is(self) -> None:
        group = group_of(status={"nextSerial": 1})
        shim, name = Shim(group), group.names.name(0)
        shim.store.put_node(node_of(group, 0))
        running = put(1, f"kwok:{name}") + put(2, put(1, 1))
        assert shim.raw("NodeGroupNodes", put(1, "web")) == put(1, running)
        (owner,) = fields(shim.raw("NodeGroupForNode", put(1, sent_node(name, f"kwok:{name}"))))[1]
        assert fields(owner)[1] == [b"web"]
        nobody = shim.raw("NodeGroupForNode", put(1, sent_node("real", "aws:///b/i-0")))
        assert nobody in (b"", put(1, b"")), "a group without an id, or none"


class Version:
    """What a CA of some version writes into requests and reads in answers."""

    def __init__(self, *, old: bool, new: bool, flags: bool = True) -> None:
        self.old, self.new, self.flags = old, new, flags

    def defaults(self, *seconds: int) -> bytes:
        """CA's own options: thresholds, three times, and both flags, where it knows them."""
        sent = put(1, 0.6) + put(2, 0.7)
        if self.old:
            sent += b"".join(put(3 + i, put(1, s * SECOND)) for i, s in enumerate(seconds))
        if self.flags:
            sent += put(6, 1) + put(7, 1)
        if self.new:
            sent += b"".join(put(8 + i, put(1, s)) for i, s in enumerate(seconds))
        return sent

    def times(self, answer: bytes) -> list[int]:
        """In seconds; KeyError where this CA would follow a null pointer, or take 0."""
        found = fields(answer)
        read = []
        if self.old:
            read.append([fields(found[n][0])[1][0] // SECOND for n in (3, 4, 5)])
        if self.new:
            read.append([fields(found[n][0])[1][0] for n in (8, 9, 10)])
        assert all(times == read[0] for times in read)
        return read[0]

    def hour(self, *, old: int, new: int) -> bytes:
        """From when to when, from these field numbers on."""
        start, end = put(1, 1_700_000_000), put(1, 1_700_003_600)
        sent = put(old, start) + put(old + 1, end) if self.old else b""
        return sent + (put(new, start) + put(new + 1, end) if self.new else b"")


VERSIONS = {
    "1.32": Version(old=True, new=False, flags=False),
    "1.33 and 1.34.1": Version(old=True, new=False),
    "1.34.2": Version(old=True, new=True),
    "1.35 and later": Version(old=False, new=True),
}


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
class TestEachVersion:
    def test_options_start_from_what_this_one_sends(self, version: Version) -> None:
        options = {"scaleDownUnreadyTime": "90s"}
        shim = Shim(group_of(autoscaling={"options": options}))
        asked = put(1, "web") + put(2, version.defaults(60, 120, 180))
        (answer,) = fields(shim.raw("NodeGroupGetOptions", asked))[1]
        assert version.times(answer) == [60, 90, 180]
        found = fields(answer)
        assert (found[1], found[2]) == ([0.6], [0.7]), "one threshold is not the other"
        flags = [1] if version.flags else [0]
        assert (found.get(6, [0]), found.get(7, [0])) == (flags, flags)

    def test_the_template_is_where_this_one_looks(self, version: Version) -> None:
        answer = fields(Shim(with_template("one")).raw("NodeGroupTemplateNodeInfo", put(1, "web")))
        (node,) = answer[2 if version.new else 1]
        assert fields(fields(node)[1][0])[1] == [b"template-web"]

    def test_prices(self, version: Version) -> None:
        shim = Shim(group_of(price={"hourly": "0.5"}))
        node = sent_node("template-node-for-web-1", "", {ANNOTATION: "web"})
        asked = put(1, node) + version.hour(old=2, new=4)
        assert shim.raw("PricingNodePrice", asked) == put(1, 0.5)
        pod = put(2, put(2, put(1, "c") + put(8, put(2, put(1, "cpu") + put(2, put(1, "1"))))))
        asked = (put(1, pod) if version.old else b"") + (put(4, pod) if version.new else b"")
        (price,) = fields(shim.raw("PricingPodPrice", asked + version.hour(old=2, new=5)))[1]
        assert price == pytest.approx(0.033)


def test_a_template_is_a_bare_node() -> None:
    """By its field numbers, read without any message that we know."""
    guard = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
    template = {**TEMPLATE, "spec": {"taints": [guard]}}
    shim = Shim(group_of(status={"resolvedTemplate": template}))
    answer = shim.raw("NodeGroupTemplateNodeInfo", put(1, "web"))
    (data,) = fields(answer)[2]
    assert data != b""
    assert not data.startswith(b"k8s\0")
    node = fields(data)
    assert node.keys() <= {1, 2, 3}, "metadata, spec, status"
    metadata, spec, status = (fields(node[n][0]) for n in (1, 2, 3))
    assert metadata[1] == [b"template-web"]
    assert entry("kubernetes.io/arch", "amd64") in metadata[11]
    assert entry(ANNOTATION, "web") in metadata[12]
    assert put(1, "kwok-provider") + put(2, "true") + put(3, "NoSchedule") in spec[5]
    assert put(1, "cpu") + put(2, put(1, "8")) in status[1]
    assert put(1, "cpu") + put(2, put(1, "7")) in status[2]
    conditions = [fields(each) for each in status[4]]
    assert [c[2] for c in conditions if c[1] == [b"Ready"]] == [[b"True"]]


@pytest.mark.parametrize("name", ["web", "db"])
def test_the_annotation_of_a_template_says_whose_it_is(name: str) -> None:
    """CA asks for the price of a node that it has renamed."""
    prices = {"web": "0.25", "db": "4"}
    shim = Shim(
        *(
            with_template("one", name=group, price={"hourly": price}, status={"nextSerial": 1})
            for group, price in prices.items()
        )
    )
    db = shim.store.served("db")
    assert db is not None
    template = decode_node(shim.template(name).nodeBytes)["metadata"]
    node = pb.ExternalGrpcNode(
        name=f"template-node-for-{name}-5577006791947779410",
        # Of a real node, and not necessarily of this group.
        providerID=f"kwok:{db.names.name(0)}",
        labels=template["labels"] | {"kubernetes.io/hostname": "template-node-for-x"},
        annotations=template["annotations"],
    )
    request = pb.PricingNodePriceRequest(node=node)
    request.startTimestamp.FromSeconds(0)
    request.endTimestamp.FromSeconds(3600)
    found = shim.ask("PricingNodePrice", request, pb.PricingNodePriceResponse)
    assert found.price == float(prices[name])


def test_groups_that_differ_in_their_zone_alone_are_alike(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """--balance-similar-node-groups compares the label that it is told, and what pods can use."""
    assert cli(["cloud-config"]) == 0
    (flag,) = [f for f in capsys.readouterr().out.split() if f.startswith("--balancing-label")]

    def labelled(name: str, label: str) -> Group:
        labels = {**TEMPLATE["metadata"]["labels"], label: name}
        template: dict[str, Any] = {**TEMPLATE, "metadata": {"labels": labels}}
        status = {"resolvedTemplate": template, "templateHash": name}
        return group_of(name, status=status)

    zone = "topology.kubernetes.io/zone"
    shim = Shim(labelled("a", zone), labelled("b", zone), labelled("c", "tier"))
    nodes = [decode_node(shim.template(name).nodeBytes) for name in ("a", "b", "c")]
    compared = [node["metadata"]["labels"][flag.partition("=")[2]] for node in nodes]
    assert compared[0] == compared[1] != compared[2]
    assert nodes[0]["status"] == nodes[1]["status"]


def test_ten_thousand_groups_stay_below_the_limit_of_clients() -> None:
    group = pb.NodeGroup(
        id="g" * 50, minSize=2**31 - 1, maxSize=2**31 - 1, debug="50000 of 50000 nodes are usable"
    )
    assert len(messages.node_groups([group] * 10_000)) < 4 * 2**20
