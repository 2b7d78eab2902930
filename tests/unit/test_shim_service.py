"""cluster-autoscaler's calls that only read, by bytes in and bytes out: groups and their nodes.

What else a group says is in test_shim_service_answers.py, what changes one in
test_shim_service_writes.py.
"""

from typing import Any

import pytest

from kwok_operator.constants import CA_MIN_SIZE_ANNOTATION
from kwok_operator.shim.grpcwire import StatusCode
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.fakes.shimcalls import Clock, Shim, code_of, with_template
from tests.fakes.shimstore import group_of, node_of, pending

ALL = set(pb.DESCRIPTOR.services_by_name["CloudProvider"].methods_by_name)
EMPTY_REQUESTS = {"NodeGroups", "GPULabel", "GetAvailableGPUTypes", "Cleanup", "Refresh"}
WRITES = {"NodeGroupIncreaseSize", "NodeGroupDecreaseTargetSize", "NodeGroupDeleteNodes"}


def test_all_fifteen_are_served() -> None:
    path = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/"
    assert Shim().calls.keys() == {f"{path}{name}" for name in ALL}
    assert len(ALL) == 15


def test_a_truncated_message_is_an_invalid_argument() -> None:
    shim = Shim(group_of(price={"hourly": "1"}))
    for name in ALL - EMPTY_REQUESTS - WRITES:
        assert code_of(shim.raw, name, b"\x0a\x7f")[0] == "INVALID_ARGUMENT", name


def test_before_all_is_listed_calls_are_unavailable() -> None:
    """An empty list of groups would make CA forget them all."""
    shim = Shim(synced=False)
    for name in ALL - {"Cleanup"} - WRITES:
        assert code_of(shim.raw, name, b"")[0] == "UNAVAILABLE", name
    assert shim.raw("Cleanup", b"") == b"", "does nothing at any time"


def test_a_group_that_is_not_served_is_said_to_be() -> None:
    shim = Shim(group_of("resting", paused=True), group_of("mine", autoscaling=None))
    sentences = {
        "resting": "group resting is paused; set spec.paused to false",
        "mine": "group mine is not for cluster-autoscaler; give it spec.autoscaling",
        "../secrets": "there is no group ../secrets",
    }
    for call in ("TargetSize", "Nodes", "TemplateNodeInfo", "GetOptions"):
        for group, sentence in sentences.items():
            request = pb.NodeGroupNodesRequest(id=group).SerializeToString()
            assert code_of(shim.raw, f"NodeGroup{call}", request) == ("NOT_FOUND", sentence)


def test_only_what_is_optional_is_ever_unimplemented() -> None:
    """For any other call, CA takes that code for a failure like any other."""
    shim = Shim(with_template("one"))
    node = pb.ExternalGrpcNode(annotations={"cluster-autoscaler.kwok.nodegroup/name": "web"})
    price = pb.PricingNodePriceRequest(node=node).SerializeToString()
    web = pb.NodeGroupNodesRequest(id="web").SerializeToString()
    for name in ALL - WRITES:
        request = {"PricingNodePrice": price, "PricingPodPrice": b"", "NodeGroupForNode": b""}
        given = request.get(name, b"" if name in EMPTY_REQUESTS else web)
        if name in ("NodeGroupGetOptions", "PricingNodePrice", "PricingPodPrice"):
            assert code_of(shim.raw, name, given)[0] == "UNIMPLEMENTED"
        else:
            shim.raw(name, given)


class TestNodeGroups:
    def test_bounds(self) -> None:
        bounds = {"a": {"minSize": 2, "maxSize": 9}, "b": {}, "c": {"maxSize": 0}}
        shim = Shim(*(group_of(name, autoscaling=each) for name, each in bounds.items()))
        assert shim.loop() == {"a": (2, 9), "b": (0, 2**31 - 1), "c": (0, 0)}

    def test_the_minimum_of_one_that_has_fewer(self) -> None:
        texts = {"a": "2", "b": "1", "c": "-3", "d": "99", "e": "9" * 5_000, "f": ""}
        bounds = {"minSize": 1, "maxSize": 9}
        told = {name: {CA_MIN_SIZE_ANNOTATION: text} for name, text in texts.items()}
        shim = Shim(*(group_of(n, autoscaling=bounds, annotations=told[n]) for n in texts))
        expected = dict.fromkeys(texts, (1, 9)) | {"a": (2, 9), "d": (9, 9)}
        assert shim.loop() == expected


class TestTemplateChangedAtZero:
    """CA copies a group's last node for years, unless the group was away for a loop."""

    def test_left_out_of_exactly_one_loop(self) -> None:
        shim = Shim(with_template("one"), group_of("other"))
        both = {"web", "other"}
        assert shim.loop().keys() == both
        shim.store.put_group(with_template("two"))
        assert shim.groups().keys() == both, "a loop that has begun goes on as it was"
        assert shim.loop().keys() == shim.groups().keys() == {"other"}
        assert [shim.loop().keys() for _ in range(3)] == [both] * 3

    def test_what_happened_before_it_started_may_be_a_change(self) -> None:
        """Only of a group that has had nodes can cluster-autoscaler remember one."""
        shim = Shim(with_template("one", status={"nextSerial": 3}), group_of("fresh"))
        assert [sorted(shim.loop()) for _ in range(3)] == [
            ["fresh"],
            ["fresh", "web"],
            ["fresh", "web"],
        ]

    def test_never_while_it_wants_nodes(self) -> None:
        wants: list[dict[str, Any]] = [
            {"targetSize": 1},
            {"autoscaling": {"minSize": 1}},
            {"status": {"targetSize": 3}},
            {"status": {"pending": [pending(0, 0)], "targetSize": 0}},
        ]
        for more in wants:
            shim = Shim(with_template("one", **more))
            shim.loop()
            shim.store.put_group(with_template("two", **more))
            assert [shim.loop().keys() for _ in range(3)] == [{"web"}] * 3, more

    @pytest.mark.parametrize("deleting", [False, True])
    def test_never_while_it_has_nodes_and_then_once(self, deleting: bool) -> None:
        group = with_template("one", targetSize=0)
        shim = Shim(group)
        shim.store.put_node(node_of(group, 0, deleting=deleting))
        shim.loop()
        shim.store.put_group(with_template("two", targetSize=0))
        assert shim.loop().keys() == {"web"}
        shim.template()  # what CA hears now is not what it copies
        shim.store.drop_node(node_of(group, 0))
        assert [shim.loop().keys() == {"web"} for _ in range(3)] == [False, True, True]

    def test_not_once_cluster_autoscaler_has_read_the_new_template(self) -> None:
        shim = Shim(with_template("one"))
        shim.loop()
        shim.store.put_group(with_template("two"))
        shim.template()
        assert shim.loop().keys() == {"web"}

    def test_a_group_made_again_is_another_one(self) -> None:
        shim = Shim(with_template("one", uid="a"))
        shim.loop()
        shim.store.put_group(with_template("two", uid="b"))
        assert shim.loop().keys() == {"web"}


class TestNodeGroupForNode:
    def test_a_placeholder_is_known_by_its_providerid(self) -> None:
        """Also where its node has come meanwhile: CA looks every two minutes only."""
        group = group_of(status={"nextSerial": 1})
        shim, provider_id = Shim(group), f"kwok:{group.names.name(0)}"
        for reason in ("unregistered", "create-error"):
            annotations = {"k8s.io/cluster-autoscaler/fake-node-reason": reason}
            node = {"name": provider_id, "providerID": provider_id, "annotations": annotations}
            assert shim.group_of(**node) == "web"
            shim.store.put_node(node_of(group, 0))

    def test_a_real_node_has_an_empty_id(self) -> None:
        annotations = {"cluster-autoscaler.kwok.nodegroup/name": "web"}
        labels = {"kwok-operator.io/node-group": "web"}
        shim = Shim(group_of(status={"nextSerial": 9}))
        nodes: list[dict[str, str]] = [
            {"name": "ip-10-0-0-1", "providerID": "aws:///eu-west-1b/i-0123"},
            {"name": "web-000000", "providerID": "kwok:web-000000"},
            {"name": "web", "providerID": ""},
            {},
        ]
        for node in nodes:
            assert shim.group_of(**node, annotations=annotations, labels=labels) == "", node

    def test_bounds_are_those_of_now(self) -> None:
        group = group_of(status={"nextSerial": 1})
        shim, name = Shim(group), group.names.name(0)
        node = pb.ExternalGrpcNode(name=name, providerID=f"kwok:{name}")
        request = pb.NodeGroupForNodeRequest(node=node)
        for most in (10, 20):
            bounds = {"maxSize": most}
            shim.store.put_group(group_of(autoscaling=bounds, status={"nextSerial": 1}))
            answer = shim.ask("NodeGroupForNode", request, pb.NodeGroupForNodeResponse)
            assert answer.nodeGroup.maxSize == most


class TestNodeGroupNodes:
    def test_present_requested_and_deleted_instances(self) -> None:
        group = group_of(
            targetSize=4, status={"nextSerial": 6, "pending": [pending(3, 5)]}, scaleDown={}
        )
        names = [group.names.name(serial) for serial in range(6)]
        group = group_of(
            targetSize=3,
            scaleDown={"nodesToDelete": [names[1], names[4]]},
            status={"nextSerial": 6, "pending": [pending(3, 5)]},
        )
        shim = Shim(group)
        shim.store.put_node(node_of(group, 0))
        shim.store.put_node(node_of(group, 1))
        shim.store.put_node(node_of(group, 2, deleting=True))
        assert shim.instances() == {
            f"kwok:{names[0]}": "Running",
            f"kwok:{names[1]}": "Deleting",
            f"kwok:{names[2]}": "Deleting",
            f"kwok:{names[3]}": "Creating",
            f"kwok:{names[5]}": "Creating",
        }

    def test_an_id_is_the_providerid_whatever_its_form(self) -> None:
        group = group_of()
        shim = Shim(group)
        assert shim.instances() == {}, "none is an answer"
        shim.store.put_node(node_of(group, 0, provider_id="kwok://of-old"))
        assert shim.instances() == {"kwok://of-old": "Running"}

    def test_a_new_node_is_running_once_it_has_taken_pods_or_has_had_its_time(self) -> None:
        group, clock = group_of(targetSize=1, status={"nextSerial": 1}), Clock()
        shim, now = Shim(group, clock=clock), clock.now
        shim.store.put_node(node_of(group, 0, created=now - 15 * 60 + 1, ready=False))
        assert list(shim.instances().values()) == ["Creating"]
        clock.now += 1
        assert list(shim.instances().values()) == ["Running"]
        for fields, state in (
            ({"ready": False}, "Creating"),
            ({"not_ready_taint": True}, "Creating"),
            ({}, "Running"),
            ({"ready": False}, "Running"),
        ):
            shim.store.put_node(node_of(group, 0, created=now, **fields))
            assert list(shim.instances().values()) == [state]

    def test_what_cannot_be_created_says_why(self) -> None:
        refused = {
            "type": "Stalled",
            "status": "True",
            "reason": "Refused",
            "message": "the quota of nodes is used up",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        group = group_of(
            targetSize=2,
            status={"nextSerial": 2, "pending": [pending(0, 1)], "conditions": [refused]},
        )
        shim = Shim(group)
        shim.store.put_node(node_of(group, 0))
        request = pb.NodeGroupNodesRequest(id="web")
        there, missing = shim.ask("NodeGroupNodes", request, pb.NodeGroupNodesResponse).instances
        assert not there.status.HasField("errorInfo")
        assert missing.status.instanceState == pb.InstanceStatus.instanceCreating
        error = missing.status.errorInfo
        assert (error.errorCode, error.errorMessage) == ("Refused", "the quota of nodes is used up")
        assert error.instanceErrorClass == 99


def test_of_groups_that_are_gone_nothing_is_kept() -> None:
    shim, found = Shim(), []
    for turn in range(50):
        group = with_template("one", uid=f"u{turn}", status={"nextSerial": 1})
        shim.store.put_group(group)
        name = group.names.name(0)
        shim.loop()
        assert shim.group_of(name=name, providerID=f"kwok:{name}") == "web"
        assert shim.template().nodeBytes
        shim.store.drop_group(group)
        shim.loop()
        kept = [v for v in vars(shim.provider).values() if isinstance(v, dict | set | frozenset)]
        found.append(sum(map(len, kept)))
    assert found == [0] * 50


def test_status_codes_are_those_of_grpc() -> None:
    import grpc

    known = {code.name: code.value[0] for code in grpc.StatusCode}
    assert {code.name: code.value for code in StatusCode} == known
