"""The fifteen calls of cluster-autoscaler (CA), by bytes in and bytes out: reads.

- nothing is answered before all has been listed, and nothing that is no message
- NodeGroups and Refresh: who is served, within which bounds; a group whose template changed while it
  was empty is left out of exactly one loop, and none that has nodes, or wants some
- NodeGroupForNode: real nodes get an empty id, placeholders are known by their providerID
- NodeGroupNodes: ids are providerIDs; Running, Creating, Deleting, and why not
- TemplateNodeInfo is never empty; GetOptions keeps the defaults, in both generations
- prices of nodes and pods; GPU label and types, also where groups disagree
- Cleanup does nothing

What changes a group is in test_shim_service_writes.py.
"""

import logging
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.proto import kubernetes_pb2 as k8s
from kwok_operator.shim.service import SERVICE, CloudProvider
from kwok_operator.shim.status import RpcError, StatusCode
from kwok_operator.shim.store import GroupObject
from kwok_operator.shim.template import decode_node
from tests.fakes.shimstore import group_of, node_of, pending, store_of

TEMPLATE = {
    "metadata": {"labels": {"a.b/gpu": "h100", "kubernetes.io/arch": "amd64"}},
    "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}},
}
STATES = {1: "Running", 2: "Creating", 3: "Deleting"}


class Shim:
    """A store to put things into, and the calls on it."""

    def __init__(self, *groups: GroupObject, synced: bool = True) -> None:
        self.store = store_of(*groups, synced=synced)
        writer: Any = None
        self.calls = CloudProvider(store=self.store, writer=writer).handlers()

    def raw(self, name: str, request: bytes) -> bytes:
        answer = self.calls[f"{SERVICE}{name}"](request)
        assert isinstance(answer, bytes)
        return answer

    def ask(self, name: str, request: Any, answer: Any) -> Any:
        return answer.FromString(self.raw(name, request.SerializeToString()))

    def groups(self) -> dict[str, tuple[int, int]]:
        found = self.ask("NodeGroups", pb.NodeGroupsRequest(), pb.NodeGroupsResponse).nodeGroups
        return {group.id: (group.minSize, group.maxSize) for group in found}

    def loop(self) -> dict[str, tuple[int, int]]:
        assert self.raw("Refresh", b"") == b""
        return self.groups()

    def group_of(self, **node: Any) -> str:
        request = pb.NodeGroupForNodeRequest(node=pb.ExternalGrpcNode(**node))
        found = self.ask("NodeGroupForNode", request, pb.NodeGroupForNodeResponse)
        return str(found.nodeGroup.id)

    def instances(self, group: str = "web") -> dict[str, str]:
        request = pb.NodeGroupNodesRequest(id=group)
        found = self.ask("NodeGroupNodes", request, pb.NodeGroupNodesResponse).instances
        return {i.id: STATES[i.status.instanceState] for i in found}

    def template(self, group: str = "web") -> pb.NodeGroupTemplateNodeInfoResponse:
        request = pb.NodeGroupTemplateNodeInfoRequest(id=group)
        found = self.ask("NodeGroupTemplateNodeInfo", request, pb.NodeGroupTemplateNodeInfoResponse)
        assert isinstance(found, pb.NodeGroupTemplateNodeInfoResponse)
        return found

    def label(self) -> str:
        return str(self.ask("GPULabel", pb.GPULabelRequest(), pb.GPULabelResponse).label)


def code_of(call: Any, *arguments: Any, **named: Any) -> tuple[str, str]:
    with pytest.raises(RpcError) as refused:
        call(*arguments, **named)
    assert "\n" not in refused.value.message
    return refused.value.code.name, refused.value.message


ALL = set(pb.DESCRIPTOR.services_by_name["CloudProvider"].methods_by_name)
EMPTY_REQUESTS = {"NodeGroups", "GPULabel", "GetAvailableGPUTypes", "Cleanup", "Refresh"}
WRITES = {"NodeGroupIncreaseSize", "NodeGroupDecreaseTargetSize", "NodeGroupDeleteNodes"}


def test_all_fifteen_are_served() -> None:
    assert Shim().calls.keys() == {f"{SERVICE}{name}" for name in ALL}
    assert len(ALL) == 15


@pytest.mark.parametrize("name", sorted(ALL - EMPTY_REQUESTS - WRITES))
def test_a_truncated_message_is_told_so(name: str) -> None:
    assert code_of(Shim(group_of()).raw, name, b"\x0a\x7f")[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("name", sorted(ALL - {"Cleanup", "PricingPodPrice"} - WRITES))
def test_before_all_is_listed_nobody_is_told_anything(name: str) -> None:
    """An empty list of groups would make CA forget them all."""
    assert code_of(Shim(synced=False).raw, name, b"") == (
        "UNAVAILABLE",
        "groups and nodes are still being listed",
    )


@pytest.mark.parametrize(
    "name",
    ["NodeGroupTargetSize", "NodeGroupNodes", "NodeGroupTemplateNodeInfo", "NodeGroupGetOptions"],
)
def test_a_group_that_is_not_served_is_said_to_be(name: str) -> None:
    shim = Shim(group_of("resting", paused=True), group_of("mine", autoscaling=None))
    sentences = {
        "resting": "group resting is paused; set spec.paused to false",
        "mine": "group mine is not for cluster-autoscaler; give it spec.autoscaling",
        "../secrets": "there is no group ../secrets",
    }
    for group, sentence in sentences.items():
        request = pb.NodeGroupNodesRequest(id=group).SerializeToString()
        assert code_of(shim.raw, name, request) == ("NOT_FOUND", sentence)


def test_cleanup_does_nothing_at_any_time() -> None:
    assert Shim(synced=False).raw("Cleanup", b"") == b""


class TestNodeGroups:
    def test_bounds(self) -> None:
        bounds = {"a": {"minSize": 2, "maxSize": 9}, "b": {}, "c": {"maxSize": 0}}
        shim = Shim(*(group_of(name, autoscaling=each) for name, each in bounds.items()))
        assert shim.loop() == {"a": (2, 9), "b": (0, 2**31 - 1), "c": (0, 0)}

    def test_paused_groups_and_groups_without_consent_are_not_there(self) -> None:
        shim = Shim(group_of("a", paused=True), group_of("b", autoscaling=None), group_of("c"))
        assert shim.loop().keys() == {"c"}

    def test_no_groups_is_an_answer(self) -> None:
        assert Shim().loop() == {}


def with_template(hash_: str, **more: Any) -> GroupObject:
    status = {"resolvedTemplate": TEMPLATE, "templateHash": hash_, **more.pop("status", {})}
    return group_of(status=status, **more)


class TestTemplateChangedAtZero:
    """CA copies a group's last node for years, unless the group was away for a loop."""

    def test_left_out_of_exactly_one_loop(self) -> None:
        shim = Shim(with_template("one"))
        assert shim.loop().keys() == {"web"}
        shim.store.put_group(with_template("two"))
        assert shim.groups().keys() == {"web"}, "a loop that has begun goes on as it was"
        assert [shim.loop().keys() == {"web"} for _ in range(4)] == [False, True, True, True]

    def test_every_question_of_that_loop_has_one_answer(self) -> None:
        shim = Shim(with_template("one"))
        shim.loop()
        shim.store.put_group(with_template("two"))
        assert shim.loop() == {}
        assert shim.groups() == {}

    def test_others_stay(self) -> None:
        shim = Shim(with_template("one"), group_of("other"))
        shim.loop()
        shim.store.put_group(with_template("two"))
        assert shim.loop().keys() == {"other"}

    @pytest.mark.parametrize(
        "more",
        [
            {"targetSize": 1},
            {"autoscaling": {"minSize": 1}},
            {"status": {"targetSize": 3}},
            {"status": {"pending": [pending(0, 0)], "targetSize": 0}},
        ],
        ids=["target", "minimum", "target in force", "pending"],
    )
    def test_never_while_it_wants_nodes(self, more: dict[str, Any]) -> None:
        shim = Shim(with_template("one", **more))
        shim.loop()
        shim.store.put_group(with_template("two", **more))
        assert [shim.loop().keys() for _ in range(3)] == [{"web"}] * 3

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

    def test_not_when_cluster_autoscaler_has_asked_meanwhile(self) -> None:
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
    def test_a_node_of_ours(self) -> None:
        group = group_of(status={"nextSerial": 1})
        shim, name = Shim(group), group.names.name(0)
        for _ in "before", "after":
            assert shim.group_of(name=name, providerID=f"kwok:{name}") == "web"
            shim.store.put_node(node_of(group, 0))

    def test_a_placeholder_is_known_by_its_providerid(self) -> None:
        group = group_of(status={"nextSerial": 1})
        provider_id = f"kwok:{group.names.name(0)}"
        for reason in ("unregistered", "create-error"):
            annotations = {"k8s.io/cluster-autoscaler/fake-node-reason": reason}
            assert (
                Shim(group).group_of(
                    name=provider_id, providerID=provider_id, annotations=annotations
                )
                == "web"
            )

    @pytest.mark.parametrize(
        "node",
        [
            {"name": "ip-10-0-0-1", "providerID": "aws:///eu-west-1b/i-0123"},
            {"name": "web-000000", "providerID": "kwok:web-000000"},
            {"name": "web", "providerID": ""},
            {},
        ],
        ids=["real", "another's fake", "no providerID", "nothing"],
    )
    def test_a_real_node_has_an_empty_id(self, node: dict[str, str]) -> None:
        annotations = {"cluster-autoscaler.kwok.nodegroup/name": "web"}
        labels = {"kwok-operator.io/node-group": "web"}
        shim = Shim(group_of(status={"nextSerial": 9}))
        assert shim.group_of(**node, annotations=annotations, labels=labels) == ""

    def test_bounds_are_told_as_they_are_now(self) -> None:
        group = group_of(status={"nextSerial": 1})
        shim, name = Shim(group), group.names.name(0)
        node = pb.ExternalGrpcNode(name=name, providerID=f"kwok:{name}")
        request = pb.NodeGroupForNodeRequest(node=node)
        for most in (10, 20):
            bounds = {"maxSize": most}
            shim.store.put_group(group_of(autoscaling=bounds, status={"nextSerial": 1}))
            answer = shim.ask("NodeGroupForNode", request, pb.NodeGroupForNodeResponse)
            assert answer.nodeGroup.maxSize == most

    def test_a_group_that_is_paused_has_no_nodes_for_cluster_autoscaler(self) -> None:
        group = group_of(paused=True, status={"nextSerial": 1})
        name = group.names.name(0)
        assert Shim(group).group_of(name=name, providerID=f"kwok:{name}") == ""


class TestNodeGroupNodes:
    def test_there_asked_for_and_going(self) -> None:
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
        shim.store.put_node(node_of(group, 0, provider_id="kwok://of-old"))
        assert shim.instances() == {"kwok://of-old": "Running"}

    def test_what_cannot_be_created_says_why(self) -> None:
        refused = {
            "type": "Stalled",
            "status": "True",
            "reason": "Refused",
            "message": "the quota of nodes is used up",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        group = group_of(
            status={"nextSerial": 2, "pending": [pending(0, 1)], "conditions": [refused]}
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

    def test_none_is_an_answer(self) -> None:
        assert Shim(group_of()).instances() == {}


def test_target_size_is_that_within_the_bounds() -> None:
    shim = Shim(group_of("a", targetSize=3), group_of("b", targetSize=99), group_of("c"))
    targets = [
        shim.ask(
            "NodeGroupTargetSize",
            pb.NodeGroupTargetSizeRequest(id=name),
            pb.NodeGroupTargetSizeResponse,
        ).targetSize
        for name in "abc"
    ]
    assert targets == [3, 10, 0]


class TestTemplateNodeInfo:
    def test_the_node_in_the_field_of_each_generation(self) -> None:
        answer = Shim(with_template("one")).template()
        assert answer.nodeBytes == answer.nodeInfo != b""
        node = decode_node(answer.nodeBytes)
        assert node["status"]["allocatable"]["cpu"] == "7"
        assert node["metadata"]["annotations"]["cluster-autoscaler.kwok.nodegroup/name"] == "web"

    def test_it_follows_the_group(self) -> None:
        shim = Shim(with_template("one"))
        before = shim.template().nodeBytes
        assert shim.template().nodeBytes == before
        changed = {**TEMPLATE, "status": {"capacity": {"cpu": "9"}, "allocatable": {"cpu": "9"}}}
        status = {"resolvedTemplate": changed, "templateHash": "two"}
        shim.store.put_group(group_of(status=status))
        assert decode_node(shim.template().nodeBytes)["status"]["allocatable"]["cpu"] == "9"

    @pytest.mark.parametrize(
        ("status", "why"),
        [
            ({}, "it is new"),
            ({"resolvedTemplate": {"metadata": 5}, "templateHash": "x"}, "metadata"),
        ],
        ids=["none yet", "no node"],
    )
    def test_without_one_there_is_a_reason_and_never_an_empty_node(
        self, status: dict[str, Any], why: str
    ) -> None:
        code, sentence = code_of(Shim(group_of(status=status)).template)
        assert code == "FAILED_PRECONDITION"
        assert sentence.startswith("group web has no usable template: ")
        assert why in sentence


class TestGetOptions:
    def ask(self, options: Any, defaults: pb.NodeGroupAutoscalingOptions | None) -> Any:
        autoscaling = {} if options is None else {"options": options}
        shim = Shim(group_of(autoscaling=autoscaling))
        request = pb.NodeGroupAutoscalingOptionsRequest(id="web", defaults=defaults)
        answer = shim.ask("NodeGroupGetOptions", request, pb.NodeGroupAutoscalingOptionsResponse)
        return answer.nodeGroupAutoscalingOptions

    @pytest.mark.parametrize("options", [None, {}, {"scaleDownUnneededTime": None}], ids=repr)
    def test_a_group_that_sets_none_has_none(self, options: Any) -> None:
        assert code_of(self.ask, options, None)[0] == "UNIMPLEMENTED"

    def test_saying_so_costs_nothing_however_often(self) -> None:
        """Four times for each node in each loop."""
        shim, errors = Shim(group_of()), []
        request = pb.NodeGroupAutoscalingOptionsRequest(id="web").SerializeToString()
        for _ in range(3):
            with pytest.raises(RpcError) as refused:
                shim.raw("NodeGroupGetOptions", request)
            errors.append(len(refused.traceback))
        assert len(set(errors)) == 1, "an error that is raised again grows by its way each time"

    def test_what_is_not_set_is_as_cluster_autoscaler_has_it(self) -> None:
        defaults = pb.NodeGroupAutoscalingOptions(
            scaleDownUtilizationThreshold=0.6,
            scaleDownGpuUtilizationThreshold=0.7,
            zeroOrMaxNodeScaling=True,
            ignoreDaemonSetsUtilization=True,
        )
        defaults.scaleDownUnneededDuration.FromSeconds(60)
        defaults.scaleDownUnreadyDuration.FromSeconds(120)
        defaults.MaxNodeProvisionDuration.FromSeconds(180)
        found = self.ask({"scaleDownUnneededTime": "1h30m"}, defaults)
        assert found.scaleDownUnneededDuration.seconds == 5400
        assert found.scaleDownUnneededTime.duration == 5400 * 10**9
        assert found.scaleDownUnreadyDuration.seconds == 120
        assert found.scaleDownUnreadyTime.duration == 120 * 10**9
        assert found.MaxNodeProvisionDuration.seconds == 180
        assert found.MaxNodeProvisionTime.duration == 180 * 10**9
        assert found.scaleDownUtilizationThreshold == 0.6
        assert found.scaleDownGpuUtilizationThreshold == 0.7
        assert found.zeroOrMaxNodeScaling
        assert found.ignoreDaemonSetsUtilization

    def test_defaults_of_the_old_generation_are_kept_too(self) -> None:
        defaults = pb.NodeGroupAutoscalingOptions()
        defaults.scaleDownUnneededTime.duration = 60 * 10**9
        defaults.scaleDownUnreadyTime.duration = 120 * 10**9
        defaults.MaxNodeProvisionTime.duration = 180 * 10**9
        found = self.ask({"scaleDownUtilizationThreshold": "0.4"}, defaults)
        assert found.scaleDownUnneededDuration.seconds == 60
        assert found.scaleDownUnreadyDuration.seconds == 120
        assert found.MaxNodeProvisionDuration.seconds == 180
        assert found.scaleDownUtilizationThreshold == 0.4

    def test_every_option(self) -> None:
        found = self.ask(
            {
                "scaleDownUtilizationThreshold": "0",
                "scaleDownGpuUtilizationThreshold": "1.0",
                "scaleDownUnneededTime": "0s",
                "scaleDownUnreadyTime": "1s",
                "maxNodeProvisionTime": "2h",
                "zeroOrMaxNodeScaling": False,
                "ignoreDaemonSetsUtilization": True,
            },
            pb.NodeGroupAutoscalingOptions(
                scaleDownUtilizationThreshold=0.5, zeroOrMaxNodeScaling=True
            ),
        )
        assert found.scaleDownUtilizationThreshold == 0.0
        assert found.scaleDownGpuUtilizationThreshold == 1.0
        assert found.HasField("scaleDownUnneededTime")
        assert found.HasField("scaleDownUnneededDuration")
        assert found.scaleDownUnneededDuration.seconds == 0
        assert found.scaleDownUnreadyDuration.seconds == 1
        assert found.MaxNodeProvisionDuration.seconds == 7200
        assert not found.zeroOrMaxNodeScaling
        assert found.ignoreDaemonSetsUtilization


def hours(request: Any, count: float) -> Any:
    request.startTimestamp.CopyFrom(Timestamp(seconds=1_000))
    request.endTimestamp.CopyFrom(Timestamp(seconds=1_000 + int(3600 * count)))
    return request


class TestPrices:
    def node_price(self, shim: Shim, group: str, count: float = 1.0) -> float:
        annotations = {"cluster-autoscaler.kwok.nodegroup/name": group}
        # As CA calls the node of a template, which has the providerID of any node, or none.
        node = pb.ExternalGrpcNode(name="template-node-for-x-17", annotations=annotations)
        request = hours(pb.PricingNodePriceRequest(node=node), count)
        return float(shim.ask("PricingNodePrice", request, pb.PricingNodePriceResponse).price)

    def pod_price(self, shim: Shim, count: float = 1.0, **requests: str) -> float:
        pod = k8s.Pod()
        container = pod.spec.containers.add()
        for name, amount in requests.items():
            container.resources.requests[name].string = amount
        request = pb.PricingPodPriceRequest(pod_bytes=pod.SerializeToString())
        answer = shim.ask("PricingPodPrice", hours(request, count), pb.PricingPodPriceResponse)
        return float(answer.price)

    def test_a_node_costs_what_its_group_says(self) -> None:
        shim = Shim(group_of(price={"hourly": "32.77"}))
        assert self.node_price(shim, "web") == pytest.approx(32.77)
        assert self.node_price(shim, "web", 0.5) == pytest.approx(16.385)

    def test_a_group_without_a_price_has_none(self) -> None:
        assert code_of(self.node_price, Shim(group_of()), "web")[0] == "UNIMPLEMENTED"

    def test_a_node_of_nobody_has_none(self) -> None:
        code, sentence = code_of(self.node_price, Shim(group_of()), "")
        assert code == "NOT_FOUND"
        assert sentence

    def test_a_pod_costs_what_it_asks_for(self) -> None:
        shim = Shim(group_of(price={"hourly": "1"}))
        one = self.pod_price(shim, cpu="1")
        assert one > 0
        assert self.pod_price(shim, cpu="2000m") == pytest.approx(2 * one)
        assert self.pod_price(shim, 3.0, cpu="1") == pytest.approx(3 * one)
        assert self.pod_price(shim, cpu="1", memory="4Gi") > one
        assert self.pod_price(shim, **{"nvidia.com/gpu": "1"}) > one
        assert self.pod_price(shim, cpu="a lot") == self.pod_price(shim) == 0.0

    def test_where_no_group_has_a_price_pods_have_none(self) -> None:
        assert code_of(self.pod_price, Shim(group_of()), cpu="1")[0] == "UNIMPLEMENTED"


def gpu_group(name: str, label: str | None) -> GroupObject:
    autoscaling = {} if label is None else {"gpuLabel": label}
    status = {"resolvedTemplate": TEMPLATE, "templateHash": "one"}
    return group_of(name, autoscaling=autoscaling, status=status)


class TestGpus:
    def types(self, shim: Shim) -> set[str]:
        request = pb.GetAvailableGPUTypesRequest()
        answer = shim.ask("GetAvailableGPUTypes", request, pb.GetAvailableGPUTypesResponse)
        return set(answer.gpuTypes)

    def test_without_a_label_there_are_none(self) -> None:
        shim = Shim(gpu_group("a", None))
        assert (shim.label(), self.types(shim)) == ("", set())

    def test_the_label_and_its_values_on_the_nodes(self) -> None:
        shim = Shim(gpu_group("a", "a.b/gpu"), gpu_group("b", "a.b/gpu"), gpu_group("c", None))
        assert (shim.label(), self.types(shim)) == ("a.b/gpu", {"h100"})

    def test_groups_that_disagree_are_told_of(self, caplog: pytest.LogCaptureFixture) -> None:
        shim = Shim(gpu_group("a", "a.b/gpu"), gpu_group("b", "other"), gpu_group("c", "a.b/gpu"))
        with caplog.at_level(logging.WARNING):
            assert shim.label() == "a.b/gpu"
        (record,) = caplog.records
        assert "taken=a.b/gpu others=b (other)" in record.getMessage()

    def test_groups_that_agree_are_no_news(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            Shim(gpu_group("a", "a.b/gpu"), gpu_group("b", "a.b/gpu")).label()
        assert not caplog.records


def test_status_codes_are_those_of_grpc() -> None:
    import grpc

    known = {code.name: code.value[0] for code in grpc.StatusCode}
    assert {code.name: code.value for code in StatusCode} == known
