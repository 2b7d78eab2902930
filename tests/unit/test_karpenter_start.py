"""What is in the cluster before Karpenter starts: its CRDs, then its class and NodePools."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.constants import NODE_POOLS_PATH
from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.template import resolve
from kwok_operator.rehearsal import karpenterstart
from kwok_operator.rehearsal.karpenter.setup import KarpenterSetupError
from kwok_operator.rehearsal.karpenterstart import KarpenterPlace, PreparedKarpenter
from kwok_operator.rehearsal.scenario.karpenter import Karpenter
from tests.fakes.apiserver import GROUPS
from tests.fakes.applying import ApplyingApiServer
from tests.fakes.karpenter import CRDS, group

CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"


class FakeKubectl:
    """Reads the CRDs, and notes what it is asked for."""

    def __init__(self) -> None:
        self.verbs: list[str] = []

    async def __call__(self, verb: str, *arguments: str, **_: Any) -> str:
        self.verbs.append(verb)
        return "".join(map(json.dumps, CRDS)) if verb == "label" else ""


@pytest.fixture
async def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ApplyingApiServer, KarpenterPlace]]:
    monkeypatch.setattr(karpenterstart, "_LOOK_SECONDS", 0.01)
    async with ApplyingApiServer() as server:
        server.serve(NODE_POOLS_PATH, kind="NodePool")
        server.serve(CLASSES, kind="KWOKNodeClass")
        async with KubeClient(connection=server.connection()) as client:
            kubectl: Any = FakeKubectl()
            yield server, KarpenterPlace(kubectl, client, tmp_path, tmp_path)


def add_group(server: ApplyingApiServer, *, resolved: str = "True", **spec: Any) -> None:
    made = group(**spec)
    server.create(GROUPS, made)
    whole = KwokNodeGroupSpec.model_validate(made["spec"])
    condition = {"type": "TemplateResolved", "status": resolved, "reason": "A", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {
        "observedGeneration": 1,
        "resolvedTemplate": resolve(whole.template, guard=whole.guard_taint),
        "conditions": [condition],
    }
    server.patch(GROUPS, "batch", {"status": status}, subresource="status")


async def prepared(place: KarpenterPlace) -> PreparedKarpenter:
    return await place.prepare("karpenter", Karpenter(), Path("/bin/karpenter"))


async def test_all_is_there_before_it_starts(
    served: tuple[ApplyingApiServer, KarpenterPlace],
) -> None:
    server, place = served
    add_group(server, cloud={"provisioningDelay": {"fixed": "40s"}, "stock": 3})
    server.fail(404, resource="nodepools", times=2)
    found = await prepared(place)
    (kind,) = json.loads(found.types.read_text())
    assert kind["resources"]["cpu"] == "32100m"
    (pool,) = server.objects(NODE_POOLS_PATH)
    assert pool == "default"
    assert server.objects(CLASSES)["default"]["spec"] == {"nodeRegistrationDelay": "40s"}
    assert found.caveats == ("has no effect on its nodes: spec.cloud.stock of batch",)
    assert found.groups is not None and [*found.groups] == ["batch"]
    kubectl: Any = place.kubectl
    assert kubectl.verbs == ["label", "apply", "wait"], "the CRDs are Established first"


async def test_what_the_api_server_refuses(
    served: tuple[ApplyingApiServer, KarpenterPlace],
) -> None:
    server, place = served
    add_group(server)
    server.fail(422, resource="nodepools")
    with pytest.raises(KarpenterSetupError, match="NodePool default can't be applied"):
        await prepared(place)


async def test_a_template_that_is_not_resolved(
    served: tuple[ApplyingApiServer, KarpenterPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, place = served
    add_group(server, resolved="False")
    monkeypatch.setattr(karpenterstart, "_RESOLVED_WITHIN", 0.0)
    with pytest.raises(KarpenterSetupError, match="KwokNodeGroup batch is not resolved"):
        await prepared(place)
