"""What is decided without a cluster, held against a real API server."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwok_operator.constants import (
    KIND,
    POOL_KIND,
    PROFILE_KIND,
    PROFILES_PATH,
    TEMPLATE_HASH_ANNOTATION,
)
from kwok_operator.errors import BadRequestError, InvalidError, TemplateError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.nodegroups import template
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.nodewriter import NodeWriter
from kwok_operator.nodegroups.template import SourceNode, render
from kwok_operator.schema.definitions import definitions
from tests import cloudmanifests, manifests, podmanifests
from tests.e2e.api import GROUPS, POOLS, Refused
from tests.e2e.groups import group_manifest, nodes_of
from tests.e2e.kubectl import Kubectl
from tests.e2e.operator import NAMESPACE, Process
from tests.e2e.sources import configmap
from tests.manifests import Manifest

GOOD = manifests.GOOD | cloudmanifests.GOOD | podmanifests.GOOD
BAD = manifests.BAD | cloudmanifests.BAD | podmanifests.BAD
PATHS = {KIND: GROUPS, POOL_KIND: POOLS, PROFILE_KIND: PROFILES_PATH}
DRY = "dryRun=All&fieldValidation=Strict"

CORPUS = Path(__file__).parents[1] / "corpus"
NODES = sorted(p for p in CORPUS.glob("*.yaml") if not p.name.endswith(".clean.yaml"))


def answer_to(kubectl: Kubectl, manifest: Manifest) -> dict[str, Any] | str:
    """What the API server would make of a new object, or why it refuses it."""
    path = PATHS[manifest["kind"]]
    try:
        made: dict[str, Any] = kubectl.api.create(f"{path}?{DRY}", manifest)
    except Refused as refusal:
        assert refusal.status in {400, 422}
        return refusal.message
    return made


@pytest.mark.core
def test_validate_and_the_api_server_agree(kubectl: Kubectl, crds: None) -> None:
    wrong = {}
    for case, manifest in GOOD.items():
        answer, spec = answer_to(kubectl, manifest), manifest.get("spec") or {}
        if "autoscaling" in spec:
            spec = {**spec, "autoscaling": {"minSize": 0, **spec["autoscaling"]}}
        if isinstance(answer, str) or ("null" not in json.dumps(spec) and answer["spec"] != spec):
            wrong[case] = answer
    for case, (manifest, part) in BAD.items():
        answer = answer_to(kubectl, manifest)
        if not (isinstance(answer, str) and part in answer):
            wrong[case] = answer
    assert wrong == {}


@pytest.mark.core
def test_every_rule_has_a_row_in_the_table() -> None:
    def rules(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
        for value in schema.values() if isinstance(schema, dict) else schema:
            if isinstance(value, dict | list):
                yield from rules(value)

    messages = rules(list(definitions()))
    sentences = [part for _, part in BAD.values() if " " in part]
    assert [m for m in messages if not any(part in m for part in sentences)] == []


def test_every_node_of_the_corpus_makes_nodes(
    operator: Process, kubectl: Kubectl, group_name: str
) -> None:
    texts = {p.name: p.read_text() for p in NODES}
    names = {p.name: f"{group_name}-{p.stem}"[:50].rstrip("-") for p in NODES}
    groups = [
        group_manifest(
            name, targetSize=2, template={"from": {"configMap": {"name": group_name, "key": key}}}
        )
        for key, name in names.items()
    ]
    kubectl.apply(configmap(group_name, **texts), "--server-side")
    try:
        kubectl.apply({"apiVersion": "v1", "kind": "List", "items": groups})
        every = [f"kng/{name}" for name in names.values()]
        kubectl("wait", *every, "--for=condition=Ready", "--timeout=240s", timeout=270)
        for key, name in names.items():
            original = yaml.safe_load(texts[key])
            nodes = nodes_of(kubectl, name)
            assert len(nodes) == 2
            assert original["metadata"].get("uid", "no uid") not in json.dumps(nodes)
            assert original["spec"].get("providerID", "no id") not in json.dumps(nodes)
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
        metadata = json.loads(body)["metadata"]
        template_hash = metadata["annotations"][TEMPLATE_HASH_ANNOTATION]
        self._loop.run_until_complete(
            self._writer.check(
                metadata["name"], body, group="g", uid="u", template_hash=template_hash
            )
        )

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
    max_examples=100,
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
