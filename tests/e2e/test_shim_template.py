"""Templates in protobuf, put beside what a real API server says in protobuf."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwok_operator.constants import REQUESTED_AT_ANNOTATION
from kwok_operator.controlplane import Cluster
from kwok_operator.kube.client import JSON, KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.template import render, resolve
from kwok_operator.shim.proto import kubernetes_pb2 as k8s
from kwok_operator.shim.template import canonical_quantity, template_node
from tests.e2e.groups import apply_group, group_of, names_of, nodes_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process
from tests.e2e.sources import configmap
from tests.fakes.nodebytes import decode_node

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
PREFIX = "kwok:"
CORPUS = Path(__file__).parents[1] / "corpus"
NOT_READY = "node.kubernetes.io/not-ready"
OF_OTHERS = ("node.alpha.kubernetes.io/ttl",)
"""Annotations that Kubernetes' own controllers put on any node."""
OLD_ARCH, OLD_OS = "beta.kubernetes.io/arch", "beta.kubernetes.io/os"
NOW = "2026-01-02T03:04:05Z"


class ApiServer:
    """Asks one API server for nodes in protobuf."""

    def __init__(self, client: KubeClient, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def node(self, name: str) -> bytes:
        request = self._client.request("GET", f"/api/v1/nodes/{name}", accept=PROTOBUF)
        return unwrapped(self._runner.run(request))

    def would_create(self, body: bytes, content_type: str) -> bytes:
        """The Node that a POST would create; it is refused where any field is unknown."""
        request = self._client.request(
            "POST",
            "/api/v1/nodes",
            params={"dryRun": "All", "fieldValidation": "Strict"},
            body=body,
            content_type=content_type,
            accept=PROTOBUF,
        )
        return unwrapped(self._runner.run(request))


def unwrapped(answer: bytes) -> bytes:
    assert answer.startswith(MAGIC)
    envelope = k8s.Unknown.FromString(answer[len(MAGIC) :])
    assert (envelope.typeMeta.apiVersion, envelope.typeMeta.kind) == ("v1", "Node")
    return envelope.raw


def wrapped(node: bytes) -> bytes:
    kind = k8s.TypeMeta(apiVersion="v1", kind="Node")
    return MAGIC + k8s.Unknown(typeMeta=kind, raw=node).SerializeToString()


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[ApiServer]:
    with asyncio.Runner() as runner:
        connection = runner.run(load_connection(kubeconfig=str(cluster.kubeconfig)))
        client = KubeClient(connection=connection)
        yield ApiServer(client, runner)
        runner.run(client.close())
        runner.run(asyncio.sleep(0.3))  # for TLS to say good-bye, which nobody can wait for


def without_empties(value: Any) -> Any:
    """JSON without what means nothing, at any depth; a label may be empty and mean something."""
    if isinstance(value, dict):
        texts = ("labels", "annotations")
        below = {k: v if k in texts else without_empties(v) for k, v in value.items()}
        return {key: inner for key, inner in below.items() if inner not in (None, "", {}, [])}
    if isinstance(value, list):
        return [without_empties(inner) for inner in value]
    return value


def in_common(node: dict[str, Any]) -> dict[str, Any]:
    """What a template and a node of its group have in common, as far as others leave it alone."""
    metadata, status = node["metadata"], node["status"]
    annotations = metadata["annotations"]
    unlike = (REQUESTED_AT_ANNOTATION, *OF_OTHERS)
    resources = {
        kind: {name: canonical_quantity(value) for name, value in status[kind].items()}
        for kind in ("capacity", "allocatable")
    }
    return {
        "name": metadata["name"],
        "labels": metadata["labels"],
        "annotations": {key: annotations[key] for key in annotations if key not in unlike},
        "taints": [t for t in node["spec"].get("taints", []) if t["key"] != NOT_READY],
        "providerID": node["spec"]["providerID"],
        "nodeInfo": status["nodeInfo"],
        **resources,
    }


def pasted(name: str) -> dict[str, Any]:
    node: dict[str, Any] = yaml.safe_load((CORPUS / f"{name}.yaml").read_text())
    return node


TEMPLATES: dict[str, dict[str, Any]] = {
    "default": {},
    "gpu": {
        "shape": {
            "cpu": "1.5",
            "memory": "2048Mi",
            "gpu": {"type": "nvidia.com/gpu", "count": 8},
            "reserved": {"cpu": "100m", "memory": "100M"},
            "zone": "eu-west-1b",
            "labels": {"example.com/empty": ""},
            "taints": [
                {"key": "gpu", "effect": "NoSchedule"},
                {"key": "gpu", "value": "x", "effect": "NoExecute"},
            ],
        }
    },
    "eks": {"node": pasted("eks-managed"), "shape": {"cpu": "8"}},
    "gke": {"node": pasted("gke-gpu-spot")},
    "kubeadm": {"node": pasted("kubeadm-worker-calico")},
    "configmap": {"from": {"configMap": {"name": "shim-templates", "key": "nodes"}}},
}


@pytest.fixture
def templates_configmap(kubectl: Kubectl, operator: Process) -> Iterator[None]:
    kubectl.apply(configmap("shim-templates", nodes=(CORPUS / "openshift-worker.yaml").read_text()))
    yield
    kubectl("delete", "configmap", "shim-templates", "--namespace=kwok-operator")


def test_a_template_says_what_the_groups_node_says(
    api: ApiServer, kubectl: Kubectl, templates_configmap: None, group_name: str
) -> None:
    groups = {f"{group_name}-{case}": template for case, template in TEMPLATES.items()}
    for name, template in groups.items():
        apply_group(kubectl, name, targetSize=1, template=template)
    for name in groups:
        wait_ready(kubectl, name)
        says_the_same(api, kubectl, name)


def says_the_same(api: ApiServer, kubectl: Kubectl, group_name: str) -> None:
    (name,) = names_of(kubectl, group_name)
    # Kubernetes' node lifecycle controller is no part of being Ready.
    eventually(
        lambda: {OLD_ARCH, OLD_OS} <= nodes_of(kubectl, group_name)[0]["metadata"]["labels"].keys(),
        describe="the node has the labels that Kubernetes adds",
    )

    # A node's status is written by others, so both answers have to be of one moment.
    def both() -> tuple[dict[str, Any], dict[str, Any]]:
        return decode_node(api.node(name)), kubectl.json("get", "node", name)

    sent, shown = eventually(
        both,
        lambda b: b[0]["metadata"]["resourceVersion"] == b[1]["metadata"]["resourceVersion"],
        describe="two reads of one state",
    )
    del shown["apiVersion"], shown["kind"]
    assert sent == without_empties(shown)

    group = group_of(kubectl, group_name)
    ours = template_node(
        group["status"]["resolvedTemplate"],
        group=group_name,
        uid=group["metadata"]["uid"],
        provider_id_prefix=PREFIX,
    )
    # Its name apart, which is in labels and annotations too.
    text = json.dumps(in_common(decode_node(ours))).replace(f"template-{group_name}", name)
    assert json.loads(text) == in_common(sent)

    accepted = decode_node(api.would_create(wrapped(ours), PROTOBUF))
    assert in_common(accepted) == in_common(decode_node(ours))
    assert accepted["status"]["conditions"] == decode_node(ours)["status"]["conditions"]


keys = st.from_regex(r"(example\.com/)?[a-z]([-a-z0-9_.]{0,20}[a-z0-9])?", fullmatch=True)
values = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?)?", fullmatch=True)
quantities = st.builds(
    "{}{}".format,
    st.integers(0, 10**6) | st.decimals(0, 1000, places=3) | st.sampled_from(["007", ".5", "+1"]),
    st.sampled_from(["", "m", "u", "n", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3", "e-2", "E2"]),
)
pieces = st.integers(0, 10**9) | st.sampled_from(["1k", "3000", "1e3", "0", "2Ki"])
effects = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
any_template = st.fixed_dictionaries(
    {
        "node": st.fixed_dictionaries(
            {
                "metadata": st.fixed_dictionaries(
                    {
                        "labels": st.dictionaries(keys, values, max_size=4),
                        "annotations": st.dictionaries(keys, words, max_size=4),
                    }
                ),
                "spec": st.fixed_dictionaries(
                    {
                        "taints": st.lists(
                            st.fixed_dictionaries(
                                {"key": keys, "effect": effects}, optional={"value": values}
                            ),
                            max_size=3,
                        )
                    }
                ),
                "status": st.fixed_dictionaries(
                    {
                        "capacity": st.fixed_dictionaries(
                            {},
                            optional={
                                "cpu": quantities,
                                "memory": quantities,
                                "pods": pieces,
                                "example.com/fpga": pieces,
                            },
                        )
                    }
                ),
            }
        )
    }
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(template=any_template)
def test_any_template_is_the_same_node_in_protobuf_and_in_json(
    template: dict[str, Any], api: ApiServer
) -> None:
    resolved = resolve(Template.model_validate(template), guard=GuardTaint())
    group, uid = "any", "0c9bd1c2-0000-4000-8000-a1b2c3d4e5f6"
    ours = template_node(resolved, group=group, uid=uid, provider_id_prefix=PREFIX)
    made = render(resolved, group=group, uid=uid, provider_id_prefix=PREFIX, endpoint=None)
    body = made.body("template-any", requested_at=NOW, now=NOW, ready=False)

    from_protobuf = decode_node(api.would_create(wrapped(ours), PROTOBUF))
    from_json = decode_node(api.would_create(body, JSON))
    said = in_common(decode_node(ours))
    assert in_common(from_protobuf) == said
    assert in_common(from_json) == said
    # What we write is in the API server's own notation: it keeps it letter by letter.
    assert from_protobuf["status"]["capacity"] == decode_node(ours)["status"]["capacity"]
