"""What cluster-autoscaler (CA) is told of a single group: its template, its options, prices, GPUs.

The bytes of each version of CA are in test_shim_traps.py.
"""

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kwok_operator.constants import ALIKE_LABEL, CAPI_NAMESPACE_ANNOTATION, FROM_ZERO_ANNOTATION
from kwok_operator.nodegroups.client import Group
from kwok_operator.shim.groupnodes import STARTUP_TIME
from kwok_operator.shim.grpcwire import RpcError
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.proto import kubernetes_pb2 as k8s
from tests.fakes.nodebytes import decode_node
from tests.fakes.shimcalls import (
    NOW,
    TEMPLATE,
    Clock,
    Shim,
    code_of,
    options_are_given,
    with_template,
)
from tests.fakes.shimstore import group_of, node_of, pending

OPTIONS: dict[str, Any] = {"scaleDownUnneededTime": "5m", "maxNodeProvisionTime": "1h"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestTemplateNodeInfo:
    def test_it_follows_the_group_in_the_field_of_each_generation(self) -> None:
        shim = Shim(with_template("one"))
        before = shim.template()
        assert before.nodeBytes == before.nodeInfo == shim.template().nodeBytes
        node = decode_node(before.nodeBytes)
        assert node["status"]["allocatable"]["cpu"] == "7"
        assert node["metadata"]["annotations"]["cluster-autoscaler.kwok.nodegroup/name"] == "web"
        changed = {**TEMPLATE, "status": {"capacity": {"cpu": "9"}, "allocatable": {"cpu": "9"}}}
        status = {"resolvedTemplate": changed, "templateHash": "two"}
        shim.store.put_group(group_of(status=status))
        assert decode_node(shim.template().nodeBytes)["status"]["allocatable"]["cpu"] == "9"

    def test_without_one_there_is_a_reason_and_never_an_empty_node(self) -> None:
        for status, why in (
            ({}, "it is new"),
            ({"resolvedTemplate": {"metadata": 5}, "templateHash": "x"}, "metadata"),
        ):
            code, sentence = code_of(Shim(group_of(status=status)).template)
            assert (code, why in sentence) == ("FAILED_PRECONDITION", True)


class TestFromZero:
    def shim(self, annotation: str) -> Shim:
        group = with_template("one", annotations={FROM_ZERO_ANNOTATION: annotation})
        return Shim(group)

    def node(self, overlay: Any) -> dict[str, Any]:
        return decode_node(self.shim(json.dumps(overlay)).template().nodeBytes)

    def test_labels_taints_and_amounts_are_laid_over_the_node(self) -> None:
        plain = self.node({})
        taint = {"key": "a", "value": "", "effect": "Odd"}
        found = self.node(
            {
                "labels": {"kubernetes.io/os": "", "kubernetes.io/arch": None, "new": "x"},
                "taints": [taint],
                "capacity": {"cpu": "9", "pods": "110"},
            }
        )
        labels = {**plain["metadata"]["labels"], "kubernetes.io/os": "", "new": "x"}
        del labels["kubernetes.io/arch"]
        assert found["metadata"]["labels"] == labels
        assert found["spec"]["taints"] == [{"key": "a", "effect": "Odd"}]
        assert found["status"]["capacity"]["cpu"] == "9"
        assert found["status"]["allocatable"]["cpu"] == "9"
        assert found["status"]["allocatable"]["pods"] == "110"
        assert "taints" not in self.node({"taints": []})["spec"]

    def test_labels_are_those_of_a_node_once_there_is_one(
        self,
    ) -> None:
        wrong = {"kubernetes.io/arch": "", "new": "x"}
        group = with_template(
            "one", annotations={FROM_ZERO_ANNOTATION: json.dumps({"labels": wrong})}
        )
        shim = Shim(group)
        labels = decode_node(shim.template().nodeBytes)["metadata"]["labels"]
        assert (labels["kubernetes.io/arch"], labels["new"]) == ("", "x")
        node = node_of(group, 0)
        shim.store.put_node(node)
        labels = decode_node(shim.template().nodeBytes)["metadata"]["labels"]
        assert (labels["kubernetes.io/arch"], labels["new"]) == ("amd64", "x")
        shim.store.drop_node(node)
        labels = decode_node(shim.template().nodeBytes)["metadata"]["labels"]
        assert labels["kubernetes.io/arch"] == ""

    def test_a_change_of_it_is_a_new_template(self) -> None:
        shim = self.shim("{}")
        shim.template()
        overlay = json.dumps({"labels": {"new": "x"}})
        shim.store.put_group(with_template("one", annotations={FROM_ZERO_ANNOTATION: overlay}))
        assert decode_node(shim.template().nodeBytes)["metadata"]["labels"]["new"] == "x"

    def test_of_cluster_apis_objects_it_is_what_cas_own_provider_shows(self) -> None:
        """With kube-proxy on it, and without the labels that Kubernetes adds to each node."""
        mark = {CAPI_NAMESPACE_ANNOTATION: "a"}
        shim = Shim(with_template("one"))
        plain = decode_node(shim.template().nodeBytes)
        shim.store.put_group(with_template("one", annotations=mark))
        found = decode_node(shim.template().nodeBytes)
        assert plain["status"]["allocatable"]["cpu"] == "7"
        assert found["status"]["allocatable"]["cpu"] == "6900m"
        assert found["status"]["capacity"] == plain["status"]["capacity"]
        gone = plain["metadata"]["labels"].keys() - found["metadata"]["labels"].keys()
        assert gone == {"beta.kubernetes.io/arch"}, "the template names no operating system"
        overlay = json.dumps({"capacity": {"cpu": "50m", "pods": "1"}})
        annotations = mark | {FROM_ZERO_ANNOTATION: overlay}
        shim.store.put_group(with_template("one", annotations=annotations))
        amounts = decode_node(shim.template().nodeBytes)["status"]["allocatable"]
        assert (amounts["cpu"], amounts["pods"]) == ("0", "0")

    def test_of_cluster_api_those_at_zero_are_alike(
        self,
    ) -> None:
        """Its view from zero lacks labels that each node has, so CA's provider balances neither."""

        def alike(overlay: dict[str, Any], name: str = "web") -> str:
            annotations = {CAPI_NAMESPACE_ANNOTATION: "a"}
            annotations[FROM_ZERO_ANNOTATION] = json.dumps(overlay)
            shim = Shim(with_template("one", annotations=annotations, name=name))
            node = decode_node(shim.template(name).nodeBytes)
            return str(node["metadata"]["labels"][ALIKE_LABEL])

        plain = decode_node(Shim(with_template("one")).template().nodeBytes)
        of_nodes = plain["metadata"]["labels"][ALIKE_LABEL]
        assert alike({}) != of_nodes
        assert alike({"labels": {"topology.kubernetes.io/zone": "b"}}) == alike({})
        assert alike({}, "other") == alike({})
        assert alike({"labels": {"tier": "web"}}) not in (alike({}), of_nodes)
        assert alike({"labels": {ALIKE_LABEL: "chosen"}}) == "chosen"

    @pytest.mark.parametrize(
        "annotation",
        [
            "",
            "nonsense",
            "[]",
            "[" * 100_000,
            '{"labels": {"a": 5}}',
            '{"labels": ["a"]}',
            '{"labels": {"a": "\\ud800"}}',
            '{"taints": [{"value": "no key"}]}',
            '{"taints": {"key": "a"}}',
            '{"capacity": {"cpu": "many"}}',
            '{"capacity": {"cpu": "-1"}}',
            '{"lables": {}}',
        ],
    )
    def test_an_unreadable_annotation_is_logged_once_and_ignored(
        self, annotation: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        shim = self.shim(annotation)
        found = [shim.template().nodeBytes for _ in range(2)]
        assert found == 2 * [Shim(with_template("one")).template().nodeBytes]
        (told,) = [record.getMessage() for record in caplog.records]
        assert f"group=web annotation={FROM_ZERO_ANNOTATION} reason=" in told


class TestGetOptions:
    def ask(self, options: Any, defaults: pb.NodeGroupAutoscalingOptions | None) -> Any:
        shim = Shim(group_of(autoscaling={} if options is None else {"options": options}))
        request = pb.NodeGroupAutoscalingOptionsRequest(id="web", defaults=defaults)
        answer = shim.ask("NodeGroupGetOptions", request, pb.NodeGroupAutoscalingOptionsResponse)
        return answer.nodeGroupAutoscalingOptions

    def test_a_group_that_sets_none_has_none(self) -> None:
        for options in (None, {}, {"scaleDownUnneededTime": None}):
            assert code_of(self.ask, options, None)[0] == "UNIMPLEMENTED", options

    def test_saying_so_costs_nothing_however_often(self) -> None:
        """Four times for each node in each loop."""
        shim, errors = Shim(group_of()), []
        request = pb.NodeGroupAutoscalingOptionsRequest(id="web").SerializeToString()
        for _ in range(3):
            with pytest.raises(RpcError) as refused:
                shim.raw("NodeGroupGetOptions", request)
            errors.append(len(refused.traceback))
        assert len(set(errors)) == 1, "an error that is raised again grows by its way each time"

    def test_every_option_also_where_it_is_nothing(self) -> None:
        found = self.ask(
            {
                "scaleDownUtilizationThreshold": "0",
                "scaleDownGpuUtilizationThreshold": "1.0",
                "scaleDownUnneededTime": "0s",
                "scaleDownUnreadyTime": "1s",
                "maxNodeProvisionTime": "1h30m",
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
        assert found.MaxNodeProvisionDuration.seconds == 5400
        assert not found.zeroOrMaxNodeScaling
        assert found.ignoreDaemonSetsUtilization


def patient(name: str = "web", **more: Any) -> Group:
    """A group with options, whose nodes may take an hour to come."""
    return group_of(name, autoscaling={"options": more.pop("options", OPTIONS)}, **more)


class TestStartingNodes:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"ready": True}, True),
            ({"ready": False}, False),
            ({"ready": True, "not_ready_taint": True}, False),
            ({"ready": False, "deleting": True}, True),
            ({"ready": False, "owner_uids": ()}, True),
            ({"ready": False, "created": NOW - STARTUP_TIME - 1}, True),
            ({"ready": False, "created": NOW - STARTUP_TIME + 1}, False),
        ],
        ids=["Ready", "not Ready", "tainted", "going", "another's", "too old", "still young"],
    )
    def test_a_node(self, clock: Clock, changes: dict[str, Any], expected: bool) -> None:
        group = patient()
        shim = Shim(group, clock=clock)
        shim.store.put_node(node_of(group, 0, **{"created": NOW, **changes}))
        assert options_are_given(shim) is expected

    @pytest.mark.parametrize("end", ["Ready", "deleted", "not in a new list", "old"])
    def test_until(self, clock: Clock, end: str) -> None:
        group = patient()
        shim = Shim(group, clock=clock)
        starting = node_of(group, 0, ready=False, created=NOW)
        shim.store.put_node(starting)
        assert not options_are_given(shim)
        if end == "Ready":
            shim.store.put_node(node_of(group, 0, created=NOW))
        elif end == "deleted":
            shim.store.drop_node(starting)
        elif end == "not in a new list":
            shim.store.replace_nodes([], 1)
        else:
            clock.now += STARTUP_TIME
        assert options_are_given(shim)

    def test_one_of_many_is_enough_in_any_order_and_no_matter_of_others(self, clock: Clock) -> None:
        group = patient()
        shim = Shim(group, patient("other"), clock=clock)
        for serial, age in enumerate((800, 100, 500)):
            shim.store.put_node(node_of(group, serial, ready=False, created=NOW - age))
        for later, expected in ((0, False), (200, False), (500, False), (801, True)):
            clock.now = NOW + later
            assert options_are_given(shim) is expected
            assert options_are_given(shim, "other")

    def test_it_costs_the_same_however_many_are_starting(self, clock: Clock) -> None:
        """Asked four times for each node."""

        def seconds(starting: int) -> float:
            group = patient()
            shim = Shim(group, clock=clock)
            for serial in range(starting):
                shim.store.put_node(node_of(group, serial, ready=False, created=NOW))
            return min(timed(lambda: shim.store.is_starting(group)) for _ in range(50))

        assert seconds(20_000) < 20 * seconds(1) + 0.0001


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class TestPatientGroups:
    """The instance was asked for at NOW, and a node of the group is starting."""

    def ask(self, clock: Clock, later: float, **more: Any) -> bool:
        group = patient(**({"status": {"nextSerial": 2, "pending": [pending(1, 1)]}} | more))
        clock.now = NOW + later
        shim = Shim(group, clock=clock)
        shim.store.put_node(node_of(group, 0, ready=False, created=clock.now))
        return options_are_given(shim)

    def test_once_the_flag_would_give_it_up(self, clock: Clock) -> None:
        assert [self.ask(clock, later) for later in (899, 901, 9_999)] == [False, True, True]

    def test_not_where_the_group_is_no_more_patient_than_the_flag(self, clock: Clock) -> None:
        assert not self.ask(clock, 901, options={"maxNodeProvisionTime": "15m"})
        assert not self.ask(clock, 901, options={"scaleDownUnneededTime": "5m"})

    def test_not_where_nothing_is_missing_or_nobody_knows_since_when(self, clock: Clock) -> None:
        assert not self.ask(clock, 901, status={"nextSerial": 2})
        for date in ("", "yesterday", "0001-01-01T00:00:00"):
            batch = {**pending(1, 1), "requestedAt": date}
            assert not self.ask(clock, 9_999, status={"nextSerial": 2, "pending": [batch]}), date


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

    def test_a_pod_costs_what_it_asks_for(self) -> None:
        shim = Shim(group_of(price={"hourly": "1"}))
        one = self.pod_price(shim, {"cpu": "1"})
        assert one > 0
        assert self.pod_price(shim, {"cpu": "2000m"}) == pytest.approx(2 * one)
        assert self.pod_price(shim, {"cpu": "1"}, 3.0) == pytest.approx(3 * one)
        assert self.pod_price(shim, {"cpu": "1", "memory": "4Gi"}) > one
        assert self.pod_price(shim, {"nvidia.com/gpu": "1"}) > one
        assert self.pod_price(shim, {"cpu": "a lot"}) == self.pod_price(shim, {}) == 0.0

    def test_groups_and_pods_without_a_price(self) -> None:
        shim = Shim(group_of())
        assert code_of(self.node_price, shim, "web")[0] == "UNIMPLEMENTED"
        assert code_of(self.node_price, shim, "")[0] == "NOT_FOUND"
        assert code_of(self.pod_price, shim, {"cpu": "1"})[0] == "UNIMPLEMENTED"


def gpu_group(name: str, label: str | None, **autoscaling: Any) -> Group:
    autoscaling |= {} if label is None else {"gpuLabel": label}
    status = {"resolvedTemplate": TEMPLATE, "templateHash": "one"}
    return group_of(name, autoscaling=autoscaling, status=status)


class TestGpus:
    def types(self, shim: Shim) -> set[str]:
        request = pb.GetAvailableGPUTypesRequest()
        answer = shim.ask("GetAvailableGPUTypes", request, pb.GetAvailableGPUTypesResponse)
        return set(answer.gpuTypes)

    def test_the_label_and_its_values_on_the_nodes(self) -> None:
        none = Shim(gpu_group("a", None))
        assert (none.label(), self.types(none)) == ("", set())
        shim = Shim(gpu_group("a", "a.b/gpu"), gpu_group("b", "a.b/gpu"), gpu_group("c", None))
        assert (shim.label(), self.types(shim)) == ("a.b/gpu", {"h100"})

    def test_the_label_is_unimplemented_before_there_is_a_group(self) -> None:
        """CA asks until it gets an answer, and keeps that for good: an empty one as well."""
        shim = Shim()
        assert code_of(shim.label)[0] == "UNIMPLEMENTED"
        shim.store.put_group(gpu_group("a", "a.b/gpu"))
        assert shim.label() == "a.b/gpu"

    def test_types_that_groups_name_and_those_on_their_nodes(self) -> None:
        named = gpu_group("b", "a.b/gpu", gpuTypes=["a100", "h100"])
        unlabelled = gpu_group("c", None, gpuTypes=["k80"])
        shim = Shim(gpu_group("a", "a.b/gpu"), named, unlabelled)
        assert self.types(shim) == {"a100", "h100", "k80"}

    def test_a_status_that_somebody_else_wrote_has_none(self) -> None:
        for template in ({"metadata": 5}, {"metadata": {"labels": [1]}}, {}):
            status = {"resolvedTemplate": template, "templateHash": "one"}
            shim = Shim(group_of(autoscaling={"gpuLabel": "x"}, status=status))
            assert self.types(shim) == set(), template

    def test_groups_that_disagree_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        agreeing = gpu_group("a", "a.b/gpu"), gpu_group("c", "a.b/gpu")
        with caplog.at_level(logging.WARNING):
            Shim(*agreeing).label()
            assert not caplog.records
            assert Shim(*agreeing, gpu_group("b", "other")).label() == "a.b/gpu"
        (record,) = caplog.records
        assert "taken=a.b/gpu others=b (other)" in record.getMessage()
