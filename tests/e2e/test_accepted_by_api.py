"""What is decided without a cluster, held against a real API server.

- `kwok-operator validate` and the API server take and refuse the same groups and pools
- every node of the corpus makes nodes, born Ready with nothing of the machine it came from
- whatever is put into a node, what comes out is a node that the API server accepts, or an error
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwok_operator.controller.observed.nodecache import NodeCache
from kwok_operator.controller.writers.nodewriter import NodeWriter
from kwok_operator.core import template
from kwok_operator.core.template import SourceNode, render
from kwok_operator.errors import BadRequestError, InvalidError, TemplateError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.models.template import GuardTaint, Template
from tests import cloudmanifests, manifests
from tests.e2e.groups import apply_group, nodes_of, wait_ready
from tests.e2e.kubectl import Kubectl, KubectlError
from tests.e2e.operator import NAMESPACE, Process
from tests.e2e.sources import configmap

GOOD = manifests.GOOD | cloudmanifests.GOOD
BAD = manifests.BAD | cloudmanifests.BAD

CORPUS = Path(__file__).parents[1] / "corpus"
NODES = sorted(p for p in CORPUS.glob("*.yaml") if not p.name.endswith(".clean.yaml"))


@pytest.mark.parametrize("case", GOOD)
def test_what_validate_takes_the_api_server_takes(kubectl: Kubectl, crds: None, case: str) -> None:
    kubectl.apply(GOOD[case], "--dry-run=server", "--validate=strict")


@pytest.mark.parametrize("case", BAD)
def test_what_validate_refuses_the_api_server_refuses(
    kubectl: Kubectl, crds: None, case: str
) -> None:
    manifest, part = BAD[case]
    answer = kubectl.fails(
        "create", "--filename=-", "--dry-run=server", "--validate=strict", stdin=manifest
    )
    assert part in answer


def test_every_node_of_the_corpus_makes_nodes(
    operator: Process, kubectl: Kubectl, group_name: str
) -> None:
    kubectl.apply(
        configmap(group_name, **{p.name: p.read_text() for p in NODES}),
        "--server-side",
    )
    try:
        names = {p.name: f"{group_name}-{p.stem}"[:50].rstrip("-") for p in NODES}
        for key, name in names.items():
            source = {"configMap": {"name": group_name, "key": key}}
            apply_group(kubectl, name, targetSize=2, template={"from": source})
        for path in NODES:
            name = names[path.name]
            wait_ready(kubectl, name)
            original = yaml.safe_load(path.read_text())
            for node in nodes_of(kubectl, name):
                text = json.dumps(node)
                assert original["metadata"].get("uid", "no uid") not in text
                assert original["spec"].get("providerID", "no id") not in text
    finally:
        kubectl("delete", "configmap", group_name, f"--namespace={NAMESPACE}")


class Api:
    """Strict dry runs of nodes, one after the other, on an event loop of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._loop = asyncio.new_event_loop()
        connection = self._loop.run_until_complete(load_connection(kubeconfig=str(kubeconfig)))
        self._client = KubeClient(connection=connection)
        cache = NodeCache(changed=lambda _: None, initialised=lambda *_, **__: None)
        self._writer = NodeWriter(client=self._client, cache=cache)

    def check(self, body: bytes) -> None:
        self._loop.run_until_complete(self._writer.check(body))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@pytest.fixture(scope="module")
def api(operator_kubeconfig: Path) -> Iterator[Api]:
    api = Api(operator_kubeconfig)
    yield api
    api.close()


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=4,
)
_PARTS = ("metadata", "spec", "status")
_FIELDS = (
    "labels annotations taints capacity allocatable nodeInfo conditions images volumesInUse "
    "features runtimeHandlers declaredFeatures unschedulable finalizers"
).split()


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    path=st.sampled_from(NODES),
    changes=st.lists(
        st.tuples(st.sampled_from(_PARTS), st.sampled_from(_FIELDS), st.text(max_size=12), _JUNK),
        min_size=1,
        max_size=4,
    ),
)
def test_out_comes_a_node_or_an_error(
    api: Api, path: Path, changes: list[tuple[str, str, str, Any]]
) -> None:
    """The errors are those that become a condition: any other fails the test."""
    node: dict[str, Any] = yaml.safe_load(path.read_text())
    for part, field, key, junk in changes:
        inner = node[part].get(field)
        if isinstance(inner, dict):
            inner[key] = junk
        else:
            node[part][field] = junk
    try:
        resolved = template.resolve(
            Template(), guard=GuardTaint(), sources=[SourceNode("Node any", node)]
        )
    except TemplateError as error:
        assert error.field.startswith(("Node any", "spec.template"))
        return
    rendered = render(resolved, group="g", uid="u", provider_id_prefix="kwok:", endpoint=None)
    try:
        api.check(rendered.body("g-aaaa-000000", requested_at="", now="", ready=False))
    except (BadRequestError, InvalidError) as error:
        assert error.message
        return


def test_kubectl_explains_every_new_field(kubectl: Kubectl, crds: None) -> None:
    for field in ("template.from.nodes.cluster.secretName", "updateStrategy.rollingUpdate"):
        try:
            text = kubectl("explain", f"kng.spec.{field}")
        except KubectlError as error:
            raise AssertionError(f"{field} is not explained") from error
        assert "DESCRIPTION" in text
