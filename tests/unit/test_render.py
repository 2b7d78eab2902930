"""The bytes of a Node: everything that the contract's section on nodes promises of them."""

import copy
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kwok_operator.constants import ALIKE_LABEL
from kwok_operator.nodegroups.alike import likeness
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.naming import group_of_node
from kwok_operator.nodegroups.template import KubeletEndpoint, render, resolve, template_hash

NAME = "gpu-b-3zid-000007"
UID = "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55"
ASKED = "2026-01-02T03:04:05Z"
NOW = "2026-01-02T03:04:09Z"
ENDPOINT = KubeletEndpoint((("Hostname", "localhost"), ("InternalIP", "10.0.0.9")), 32769)


def resolved(node: dict[str, Any] | None = None) -> dict[str, Any]:
    return resolve(Template.model_validate({"node": node}), guard=GuardTaint())


def rendered(
    node: dict[str, Any] | None = None,
    *,
    name: str = NAME,
    ready: bool = False,
    endpoint: KubeletEndpoint | None = ENDPOINT,
    prefix: str = "kwok:",
    machines: str = "",
) -> dict[str, Any]:
    template = render(
        resolved() if node is None else node,
        group="gpu-b",
        uid=UID,
        provider_id_prefix=prefix,
        endpoint=endpoint,
        machines=machines,
    )
    answer = json.loads(template.body(name, requested_at=ASKED, now=NOW, ready=ready))
    assert isinstance(answer, dict)
    return answer


class TestIdentity:
    def test_a_node_with_a_machine_names_it(self) -> None:
        plain = rendered()["metadata"]["annotations"]
        named = rendered(machines="example.com/ns")["metadata"]["annotations"]
        # The hash of its template is among those that stay.
        expected = {"example.com/machine": NAME, "example.com/cluster-namespace": "ns"}
        assert named == plain | expected
        for odd in ("example.com", "/ns", "example.com/", "Example.com/ns", "a.b/<<0>>", "a/b/c"):
            assert rendered(machines=odd)["metadata"]["annotations"] == plain

    def test_nodes_with_machines_are_labelled_alike_and_still_of_their_group(self) -> None:
        found = rendered(machines="example.com/ns")["metadata"]
        assert found["labels"]["kwok-operator.io/node-group"] == "emulated"
        assert group_of_node(found["labels"], found["annotations"]) == "gpu-b"

    def test_it_is_a_node_of_that_name(self) -> None:
        node = rendered()
        assert (node["apiVersion"], node["kind"], node["metadata"]["name"]) == ("v1", "Node", NAME)

    def test_labels(self) -> None:
        assert rendered()["metadata"]["labels"] == {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": NAME,
            "kubernetes.io/os": "linux",
            "kwok-operator.io/alike": likeness(resolved()),
            "kwok-operator.io/node-group": "gpu-b",
            "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        }

    def test_which_groups_are_alike_is_the_templates_to_say(self) -> None:
        own = resolved({"metadata": {"labels": {}}})
        own["metadata"]["labels"][ALIKE_LABEL] = "web"
        assert rendered(own)["metadata"]["labels"][ALIKE_LABEL] == "web"
        # With Machines, cluster-autoscaler's view from zero would lack it.
        assert ALIKE_LABEL not in rendered(machines="example.com/ns")["metadata"]["labels"]

    def test_annotations(self) -> None:
        assert rendered()["metadata"]["annotations"] == {
            "cluster-autoscaler.kwok.nodegroup/name": "gpu-b",
            "kwok-operator.io/node-group-uid": UID,
            "kwok-operator.io/requested-at": ASKED,
            "kwok-operator.io/template-hash": template_hash(resolved()),
            "kwok-operator.io/template-taints": "kwok-provider:NoSchedule",
            "kwok.x-k8s.io/node": "fake",
            "metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{NAME}/metrics/resource",
        }

    def test_its_group_owns_it_and_is_not_kept_from_going(self) -> None:
        # blockOwnerDeletion would make a foreground deletion of the group wait for each node.
        assert rendered()["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "kwok-operator.io/v1alpha1",
                "kind": "KwokNodeGroup",
                "name": "gpu-b",
                "uid": UID,
                "controller": True,
            }
        ]

    def test_nothing_else_is_in_metadata(self) -> None:
        assert rendered()["metadata"].keys() == {
            "name", "labels", "annotations", "ownerReferences"
        }  # fmt: skip

    @pytest.mark.parametrize("prefix", ["kwok:", "kwok://", "aws:///eu-west-1b/"])
    def test_provider_id(self, prefix: str) -> None:
        assert rendered(prefix=prefix)["spec"]["providerID"] == f"{prefix}{NAME}"

    def test_what_the_template_says_is_kept(self) -> None:
        template = resolved({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})
        node = rendered(template)
        assert node["spec"]["taints"] == template["spec"]["taints"]
        assert node["status"].items() >= template["status"].items()
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "fake"

    def test_what_is_a_nodes_own_is_not_the_templates_to_say(self) -> None:
        # Such a template can't come from `resolve`, but it may have been edited in status.
        template = resolved()
        template["metadata"]["labels"] |= {
            "kubernetes.io/hostname": "other",
            "kwok-operator.io/node-group": "other",
        }
        template["metadata"]["annotations"] |= {
            "kwok.x-k8s.io/node": "real",
            "kwok-operator.io/node-group-uid": "other",
            "cluster-autoscaler.kwok.nodegroup/name": "other",
        }
        template["metadata"]["name"] = "other"
        template["spec"]["providerID"] = "other"
        assert '"other"' not in json.dumps(rendered(template))
        assert '"real"' not in json.dumps(rendered(template))


class TestNotReady:
    @pytest.mark.parametrize("endpoint", [None, ENDPOINT], ids=["unknown", "known"])
    def test_all_that_kwok_fills_in_is_left_to_kwok(self, endpoint: KubeletEndpoint | None) -> None:
        # kwok leaves out its initialisation where there are addresses or a Ready condition already.
        status = rendered(ready=False, endpoint=endpoint)["status"]
        assert status.keys() == {"capacity", "allocatable", "nodeInfo"}

    def test_without_an_endpoint_no_node_claims_to_be_ready(self) -> None:
        assert rendered(ready=True, endpoint=None) == rendered(ready=False, endpoint=None)


class TestBornReady:
    def test_conditions_are_those_of_a_healthy_node_and_dated_now(self) -> None:
        conditions = rendered(ready=True)["status"]["conditions"]
        assert {c["type"]: c["status"] for c in conditions} == {
            "Ready": "True",
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "NetworkUnavailable": "False",
        }
        for condition in conditions:
            assert condition["lastHeartbeatTime"] == condition["lastTransitionTime"] == NOW
            assert condition["reason"]
            assert condition["message"]

    def test_kwoks_addresses_and_port_are_there_verbatim(self) -> None:
        # The API server picks an address by type: even the order may matter to `kubectl logs`.
        status = rendered(ready=True)["status"]
        assert status["addresses"] == [
            {"type": "Hostname", "address": "localhost"},
            {"type": "InternalIP", "address": "10.0.0.9"},
        ]
        assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 32769}}
        assert status["phase"] == "Running"

    def test_a_kwok_that_serves_no_kubelet_api_gives_neither(self) -> None:
        status = rendered(ready=True, endpoint=KubeletEndpoint((), 0))["status"]
        assert status["addresses"] == []
        assert status["conditions"][0]["type"] == "Ready"

    def test_it_differs_from_one_that_is_not_in_status_alone(self) -> None:
        ready, not_ready = rendered(ready=True), rendered(ready=False)
        assert ready["status"].items() >= not_ready["status"].items()
        del ready["status"], not_ready["status"]
        assert ready == not_ready


hostile = st.text(
    alphabet=st.sampled_from(list('<>0123456789"\\{}, \n\t\u2028é☃𝄞nameaskdow')), max_size=20
)


@given(text=hostile, ready=st.booleans())
@example(text="<<0>>", ready=True)
@example(text="<<0>>name<<0>><<1>>", ready=False)
@example(text="<<0", ready=True)
@example(text='","name":"evil', ready=True)
@example(text="\\", ready=True)
@settings(deadline=None, max_examples=150)
def test_any_text_comes_out_as_it_went_in(text: str, ready: bool) -> None:
    template = resolved({"metadata": {"labels": {"a": text}, "annotations": {text: text, "b": ""}}})
    endpoint = KubeletEndpoint((("Hostname", text),), 1)
    node = rendered(template, ready=ready, prefix=f"{text}:", endpoint=endpoint)
    assert node["metadata"]["labels"]["a"] == text
    assert node["metadata"]["annotations"][text] == text
    assert node["spec"]["providerID"] == f"{text}:{NAME}"
    assert node["metadata"]["name"] == NAME
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NAME
    if ready:
        assert node["status"]["addresses"] == [{"type": "Hostname", "address": text}]


@pytest.mark.parametrize("prefix", ["<<0>>", "kwok:<", "<<0>", "kwok:<<0>>name<<0>>"])
def test_the_marker_in_a_prefix_is_text(prefix: str) -> None:
    assert rendered(prefix=prefix)["spec"]["providerID"] == f"{prefix}{NAME}"


def test_nodes_of_one_template_differ_in_name_and_times_only() -> None:
    template = render(
        resolved(), group="gpu-b", uid=UID, provider_id_prefix="kwok:", endpoint=ENDPOINT
    )
    first, second = (
        template.body(name, requested_at=ASKED, now=NOW, ready=True)
        for name in ("node-1", "node-2")
    )
    assert first.replace(b"node-1", b"node-2") == second
    later = template.body("node-1", requested_at=NOW, now=ASKED, ready=True)
    assert later != first
    assert json.loads(later)["status"]["conditions"][0]["lastHeartbeatTime"] == ASKED


def test_rendering_does_not_change_the_template() -> None:
    template = resolved()
    before = copy.deepcopy(template)
    rendered(template, ready=True)
    assert template == before


def test_a_template_knows_the_hash_that_its_nodes_carry() -> None:
    template = render(resolved(), group="gpu-b", uid=UID, provider_id_prefix="kwok:", endpoint=None)
    body = json.loads(template.body(NAME, requested_at=ASKED, now=NOW, ready=False))
    assert body["metadata"]["annotations"]["kwok-operator.io/template-hash"] == template.hash
    assert template.hash == template_hash(resolved())
