"""The two ConfigMaps of cluster-autoscaler's kwok provider, brought along unchanged."""

from typing import Any

import pytest

from kwok_operator.constants import (
    NOT_DERIVED_SINCE_ANNOTATION,
    PROVIDER_CONFIG_VALUE_ANNOTATION,
)
from kwok_operator.controlplane.kubectl import KubectlError
from tests.e2e.groups import (
    condition,
    group_of,
    nodes_of,
    scale,
    status_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import NAMESPACE, Harness, Process
from tests.e2e.sources import CA, CONFIG, TEMPLATES, Provider, configmap, documents, template

KEY = "kwok-nodegroup"
GPU_KEY = "k8s.amazonaws.com/accelerator"

pytestmark = pytest.mark.usefixtures("provider")

# As people have it who installed cluster-autoscaler by its chart: a List under `templates`.
CHART_CONFIG = """\
# if you see '\\n' everywhere, remove all the trailing spaces
apiVersion: v1alpha1
readNodesFrom: configmap # possible values: [cluster,configmap]
nodegroups:
  # to specify how to group nodes into a nodegroup
  fromNodeLabelKey: "kwok-nodegroup"
nodes:
  skipTaint: true
  gpuConfig:
    gpuLabelKey: "k8s.amazonaws.com/accelerator"
    availableGPUTypes:
      "nvidia-tesla-k80": {}
      "nvidia-tesla-p100": {}
configmap:
  name: kwok-provider-templates
kwok: {}
"""

# As the original documentation has it: the GPU types at the top level, and a key of its own.
README_CONFIG = """\
apiVersion: v1alpha1
readNodesFrom: configmap
nodegroups:
  fromNodeAnnotation: "example.com/pool"
nodes:
  skipTaint: false
gpuConfig:
  gpuLabelKey: "k8s.amazonaws.com/accelerator"
  availableGPUTypes:
    "nvidia-tesla-k80": {}
configmap:
  name: kwok-provider-templates
  key: kwok-config
"""


def wait_group(kubectl: Kubectl, name: str) -> dict[str, Any]:
    return eventually(lambda: group_of(kubectl, name), describe=f"group {name} is derived")


def annotations_of(kubectl: Kubectl, name: str) -> dict[str, str]:
    found: dict[str, str] = group_of(kubectl, name)["metadata"].get("annotations", {})
    return found


def counts(minimum: int, maximum: int, desired: int | None = None) -> dict[str, str]:
    found = {f"{CA}/min-count": str(minimum), f"{CA}/max-count": str(maximum)}
    return found if desired is None else found | {f"{CA}/desired-count": str(desired)}


@pytest.mark.core
def test_the_config_maps_of_the_chart(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    a, b = f"{group_name}-a", f"{group_name}-b"
    nodes = [template(f"t-{n}", labels={KEY: v}) for n, v in enumerate((a, b, a))]
    listed = {"apiVersion": "v1", "kind": "List", "items": nodes}
    provider.configure(CHART_CONFIG)
    kubectl.apply(configmap(TEMPLATES, templates=documents(listed)))
    for name in (a, b):
        group = wait_group(kubectl, name)
        gpus = {"gpuLabel": GPU_KEY, "gpuTypes": ["nvidia-tesla-k80", "nvidia-tesla-p100"]}
        assert group["spec"]["autoscaling"] == {"minSize": 0, "maxSize": 200, **gpus}
        assert "targetSize" not in group["spec"]
    provider.waits_for("NoEffect", "kwok")
    scale(kubectl, a, 2)
    wait_ready(kubectl, a)
    for node in nodes_of(kubectl, a):
        assert node["status"]["capacity"]["cpu"] == "4"
        assert node["metadata"]["labels"][KEY] == a
        assert "kwok-provider" not in [t["key"] for t in node["spec"].get("taints", [])]
    assert nodes_of(kubectl, b) == []


def test_the_config_maps_of_the_readme(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    """Any value gives a group, however long and odd; two values of one name give two."""
    odd = f"{group_name}/{'Standard_D4s_v3' * 4}"
    values = [group_name, odd, f"{group_name}-A_b", f"{group_name}-a_B"]
    pools = [
        template(f"t{n}", labels={}, annotations={"example.com/pool": value})
        for n, value in enumerate(values)
    ]
    provider.configure(README_CONFIG)
    provider.templates(*pools, key="kwok-config")

    def derived() -> dict[str, str]:
        groups = kubectl.json("get", "kng", "--selector=kwok-operator.io/derived=true")["items"]
        found = [group["metadata"] for group in groups]
        names = {m["annotations"][PROVIDER_CONFIG_VALUE_ANNOTATION]: m["name"] for m in found}
        return {value: names[value] for value in values}

    found = eventually(derived, describe="each has a group")
    assert len(set(found.values())) == len(values)
    assert found[group_name] == group_name
    assert found[odd].startswith(group_name[:20])
    scale(kubectl, found[odd], 1)
    wait_ready(kubectl, found[odd])
    (node,) = nodes_of(kubectl, found[odd])
    assert "kwok-provider" in [t["key"] for t in node["spec"]["taints"]]


@pytest.mark.core
def test_counts_come_from_annotations_and_scaling_survives(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    """desired-count sets the first target; whoever scales then is not scaled back."""
    how: dict[str, Any] = {"labels": {KEY: group_name}, "annotations": counts(1, 10, 3)}
    provider.templates(template("t", **how))
    provider.configure_for(KEY)
    eventually(
        lambda: group_of(kubectl, group_name)["spec"].get("targetSize") == 3,
        describe="desired-count is the target",
    )
    assert group_of(kubectl, group_name)["spec"]["autoscaling"] == {"minSize": 1, "maxSize": 10}
    wait_ready(kubectl, group_name)
    scale(kubectl, group_name, 5)
    provider.templates(template("t", cpu=16, **how))
    eventually(
        lambda: status_of(kubectl, group_name)["resolvedTemplate"]["status"]["capacity"]["cpu"],
        lambda cpu: cpu == "16",
        describe="the template has changed",
    )
    assert group_of(kubectl, group_name)["spec"]["targetSize"] == 5
    how["annotations"] = counts(2, 20, 4)
    provider.templates(template("t", cpu=16, **how))
    eventually(
        lambda: group_of(kubectl, group_name)["spec"],
        lambda spec: spec["autoscaling"] == {"minSize": 2, "maxSize": 20},
        describe="the bounds have changed",
    )
    assert group_of(kubectl, group_name)["spec"]["targetSize"] == 5
    wait_ready(kubectl, group_name)
    cpus = sorted(n["status"]["capacity"]["cpu"] for n in nodes_of(kubectl, group_name))
    assert set(cpus) <= {"16", "4"} and cpus.count("4") >= 3


def test_bounds_set_by_hand_stay_and_are_reported(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    how: dict[str, Any] = {"labels": {KEY: group_name}}
    provider.templates(template("t", annotations=counts(0, 10), **how))
    provider.configure_for(KEY)
    wait_group(kubectl, group_name)
    patch = '{"spec":{"autoscaling":{"maxSize":77},"scaleDown":{"order":"OldestFirst"}}}'
    kubectl("patch", "kng", group_name, "--type=merge", f"--patch={patch}")
    message = provider.waits_for("FieldOwned", group_name, "spec.autoscaling.maxSize")
    assert "kubectl-patch" in message
    provider.templates(template("t", cpu=9, annotations=counts(3, 10), **how))
    eventually(
        lambda: group_of(kubectl, group_name)["spec"]["autoscaling"],
        lambda bounds: bounds == {"minSize": 3, "maxSize": 77},
        describe="what nobody else owns goes on following",
    )
    assert group_of(kubectl, group_name)["spec"]["scaleDown"] == {"order": "OldestFirst"}


def test_templates_deleted_and_made_again_lose_nothing(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    """The documented way to replace them: kubectl delete, kubectl create. The config's end, too."""
    provider.templates(template("t", labels={KEY: group_name}, annotations=counts(0, 9, 2)))
    provider.configure_for(KEY, more="prune: true\n")
    wait_group(kubectl, group_name)
    eventually(lambda: len(nodes_of(kubectl, group_name)) == 2, describe="its nodes are there")
    uid = group_of(kubectl, group_name)["metadata"]["uid"]
    nodes = {n["metadata"]["uid"] for n in nodes_of(kubectl, group_name)}
    provider.remove(TEMPLATES)
    provider.waits_for("InvalidTemplates", TEMPLATES)
    eventually(
        lambda: condition(kubectl, group_name, "TemplateResolved"),
        lambda c: (c["status"], c["reason"]) == ("Unknown", "ConfigMapNotFound"),
        describe="the condition says that the template is the last one",
    )
    scale(kubectl, group_name, 3)
    wait_ready(kubectl, group_name)
    provider.templates(template("t", labels={KEY: group_name}, cpu=32, annotations=counts(0, 9)))
    eventually(
        lambda: status_of(kubectl, group_name)["resolvedTemplate"]["status"]["capacity"]["cpu"],
        lambda cpu: cpu == "32",
        describe="the new template is followed",
    )
    assert group_of(kubectl, group_name)["metadata"]["uid"] == uid
    assert nodes <= {n["metadata"]["uid"] for n in nodes_of(kubectl, group_name)}
    provider.waits_for("ProviderConfigValid")
    gone = "provider config is gone"
    before = operator.log().count(gone)
    provider.remove(CONFIG)
    eventually(lambda: operator.log().count(gone) > before, describe="its end is told")
    assert NOT_DERIVED_SINCE_ANNOTATION not in annotations_of(kubectl, group_name)


def test_a_group_no_longer_derived_is_marked_and_pruned_only_with_prune(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    stays, goes, new = (f"{group_name}-{part}" for part in ("stays", "goes", "new"))
    both = [template(name, labels={KEY: name, "example.com/pool": new}) for name in (stays, goes)]
    provider.templates(*both)
    provider.configure_for(KEY)
    wait_group(kubectl, goes)
    provider.templates(both[0])
    eventually(
        lambda: annotations_of(kubectl, goes)[NOT_DERIVED_SINCE_ANNOTATION],
        describe="it is kept, and marked",
    )
    provider.templates(*both)
    eventually(
        lambda: NOT_DERIVED_SINCE_ANNOTATION not in annotations_of(kubectl, goes),
        describe="it is derived again, and not marked any more",
    )
    # One template that is wrong makes the whole untrustworthy: nothing goes while it is.
    wrong = template("wrong", labels={KEY: f"{group_name}-wrong"}, annotations=counts(9, 1))
    provider.templates(both[0], wrong)
    provider.configure_for(KEY, more="prune: true\n")
    provider.waits_for("InvalidCount", "min-count")
    assert group_of(kubectl, goes)
    provider.templates(both[0])
    eventually(lambda: gone(kubectl, goes), describe="it is removed")
    assert group_of(kubectl, stays)
    provider.configure_for("example.com/pool", more="prune: true\n")
    wait_group(kubectl, new)
    eventually(lambda: gone(kubectl, stays), describe="the group of the old key is removed")


def gone(kubectl: Kubectl, name: str) -> bool:
    try:
        group_of(kubectl, name)
    except KubectlError as error:
        return "NotFound" in error.stderr
    return False


def test_another_namespace_and_another_name(
    harness: Harness, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    """Beside cluster-autoscaler, with a terminal set up for its provider; twice, to no effect."""
    namespace = f"{group_name}-ca"
    kubectl("create", "namespace", namespace)
    try:
        role = ["--resource=configmaps", "--verb=list,watch", f"--namespace={namespace}"]
        kubectl("create", "role", "reader", *role)
        account = f"--serviceaccount={NAMESPACE}:kwok-operator"
        kubectl("create", "rolebinding", "reader", "--role=reader", account, *role[2:])
        text = "apiVersion: v1alpha1\nreadNodesFrom: configmap\nconfigmap: {name: theirs}\n"
        text += f"nodegroups: {{fromNodeLabelKey: {KEY}}}\n"
        nodes = documents(template("t", labels={KEY: group_name}, annotations=counts(0, 5, 2)))
        for name, data in (("mine", {"config": text}), ("theirs", {"config": nodes})):
            found = configmap(name, **data)
            found["metadata"]["namespace"] = namespace
            kubectl.apply(found)

        def start() -> Process:
            return harness.start(
                f"--provider-config-namespace={namespace}",
                environ={
                    "KWOK_PROVIDER_CONFIGMAP": "mine",
                    "KWOK_PROVIDER_MODE": "local",
                    "KUBERNETES_SERVICE_HOST": "https://127.0.0.1",
                    "KUBERNETES_SERVICE_PORT": "6443",
                },
            )

        start()
        wait_group(kubectl, group_name)
        eventually(lambda: len(nodes_of(kubectl, group_name)) == 2, describe="it has its nodes")
        scale(kubectl, group_name, 1)
        wait_ready(kubectl, group_name)
        before = group_of(kubectl, group_name)
        process = start()
        eventually(lambda: "provider config: " in process.log(), describe="it has made a pass")
        after = group_of(kubectl, group_name)
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
        assert after["spec"]["targetSize"] == 1
    finally:
        kubectl("delete", "namespace", namespace, "--wait=false")


def test_a_huge_config_and_an_alias_bomb_hold_nothing_up(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    for above, below in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{below}: &{below} [{','.join([f'*{above}'] * 10)}]\n"
    kubectl.apply(configmap(TEMPLATES, templates=bomb))
    provider.configure_for(KEY)
    provider.waits_for("InvalidTemplates")
    many = documents(
        *(template(f"t{n:04}", labels={KEY: group_name, "n": str(n)}) for n in range(2000))
    )
    text = configmap(TEMPLATES, templates=many)
    kubectl.apply(text, "--server-side", "--force-conflicts")
    eventually(lambda: group_of(kubectl, group_name), describe="it is derived")
    assert operator.get("/healthz")[0] == 200
