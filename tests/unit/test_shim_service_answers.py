"""What cluster-autoscaler (CA) is told of a single group: its template, its options, prices, GPUs.

- TemplateNodeInfo is never empty, and stands in the field of each generation
- GetOptions keeps the defaults of either generation, and is unimplemented where nothing is set
- a node costs what its group says, a pod what it asks for, and nothing where no group has a price
- GPU label and types, also where groups disagree
"""

import logging
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kwok_operator.kube.groups import Group
from kwok_operator.shim.grpcwire import RpcError
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.proto import kubernetes_pb2 as k8s
from kwok_operator.shim.template import decode_node
from tests.fakes.shimcalls import TEMPLATE, Shim, code_of, with_template
from tests.fakes.shimstore import group_of


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

    def pod_price(self, shim: Shim, requests: dict[str, str], count: float = 1.0) -> float:
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
        one = self.pod_price(shim, {"cpu": "1"})
        assert one > 0
        assert self.pod_price(shim, {"cpu": "2000m"}) == pytest.approx(2 * one)
        assert self.pod_price(shim, {"cpu": "1"}, 3.0) == pytest.approx(3 * one)
        assert self.pod_price(shim, {"cpu": "1", "memory": "4Gi"}) > one
        assert self.pod_price(shim, {"nvidia.com/gpu": "1"}) > one
        assert self.pod_price(shim, {"cpu": "a lot"}) == self.pod_price(shim, {}) == 0.0

    def test_where_no_group_has_a_price_pods_have_none(self) -> None:
        assert code_of(self.pod_price, Shim(group_of()), {"cpu": "1"})[0] == "UNIMPLEMENTED"


def gpu_group(name: str, label: str | None) -> Group:
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

    def test_types_that_groups_name_and_those_on_their_nodes(self) -> None:
        named = group_of("b", autoscaling={"gpuLabel": "a.b/gpu", "gpuTypes": ["a100", "h100"]})
        unlabelled = group_of("c", autoscaling={"gpuTypes": ["k80"]})
        shim = Shim(gpu_group("a", "a.b/gpu"), named, unlabelled)
        assert self.types(shim) == {"a100", "h100", "k80"}

    @pytest.mark.parametrize(
        "template", [{"metadata": 5}, {"metadata": {"labels": [1]}}, {}], ids=repr
    )
    def test_a_status_that_somebody_else_wrote_has_none(self, template: dict[str, Any]) -> None:
        status = {"resolvedTemplate": template, "templateHash": "one"}
        assert self.types(Shim(group_of(autoscaling={"gpuLabel": "x"}, status=status))) == set()

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
