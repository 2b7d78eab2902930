"""The two ConfigMaps of cluster-autoscaler's kwok provider, brought along unchanged.

- what works there gives groups here: by label or annotation, with the counts of the templates
- what never worked there works: desired-count, configmap.key, one Node alone, changes without a
  restart, values that are no names
- what somebody else has set stays, and is told; a group made by hand is never taken over
- changes take effect; a ConfigMap deleted and made again loses nothing; prune is asked for
"""

from typing import Any

import pytest

from kwok_operator.constants import (
    NOT_DERIVED_SINCE_ANNOTATION,
    PROVIDER_CONFIG_ANNOTATION,
    PROVIDER_CONFIG_VALUE_ANNOTATION,
)
from tests.e2e.groups import apply_group, group_of, nodes_of, scale, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, KubectlError, eventually
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
    pool = template("t", labels={}, annotations={"example.com/pool": group_name})
    provider.configure(README_CONFIG)
    provider.templates(pool, key="kwok-config")
    wait_group(kubectl, group_name)
    scale(kubectl, group_name, 1)
    wait_ready(kubectl, group_name)
    (node,) = nodes_of(kubectl, group_name)
    assert "kwok-provider" in [t["key"] for t in node["spec"]["taints"]]


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


def test_bounds_set_by_hand_stay_and_are_told(
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


@pytest.mark.parametrize(
    "suffix", ["Standard_D4s_v3", "M5.Large", "x" * 52, "a__b", "a--b."[:4]], ids=str
)
def test_any_value_gives_a_group(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str, suffix: str
) -> None:
    annotation = f"{group_name}/{suffix * 4}"
    provider.configure(
        "apiVersion: v1alpha1\nreadNodesFrom: configmap\nconfigmap: {name: "
        f"{TEMPLATES}}}\nnodegroups: {{fromNodeAnnotationKey: example.com/pool}}\n"
    )
    provider.templates(template("t", labels={}, annotations={"example.com/pool": annotation}))

    def derived() -> list[str]:
        groups = kubectl.json("get", "kng")["items"]
        return [
            g["metadata"]["name"]
            for g in groups
            if g["metadata"].get("annotations", {}).get(PROVIDER_CONFIG_VALUE_ANNOTATION)
            == annotation
        ]

    (name,) = eventually(derived, describe="there is a group of that value")
    assert name.startswith(group_name[:20])
    scale(kubectl, name, 1)
    wait_ready(kubectl, name)


def test_two_values_of_one_name_are_two_groups(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    values = [f"{group_name}-A_b", f"{group_name}-a_B"]
    provider.templates(*(template(f"t{n}", labels={KEY: v}) for n, v in enumerate(values)))
    provider.configure_for(KEY)

    def derived() -> set[str]:
        groups = kubectl.json("get", "kng", "--selector=kwok-operator.io/derived=true")["items"]
        return {g["metadata"]["annotations"][PROVIDER_CONFIG_VALUE_ANNOTATION] for g in groups}

    eventually(derived, lambda found: found >= set(values), describe="both have a group")


def test_a_group_made_by_hand_is_not_taken_over(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=1, template={"shape": {"cpu": 2}})
    wait_ready(kubectl, group_name)
    before = group_of(kubectl, group_name)
    provider.templates(template("t", labels={KEY: group_name}))
    provider.configure_for(KEY)
    provider.waits_for("NameTaken", group_name, "made by somebody else")
    after = group_of(kubectl, group_name)
    assert after["spec"] == before["spec"]
    assert PROVIDER_CONFIG_ANNOTATION not in after["metadata"].get("annotations", {})
    kubectl("delete", "kng", group_name)
    eventually(
        lambda: annotations_of(kubectl, group_name)[PROVIDER_CONFIG_ANNOTATION],
        lambda owner: owner == f"{NAMESPACE}/{CONFIG}",
        describe="the name is free, and the group is derived",
    )


def test_templates_deleted_and_made_again_lose_nothing(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    """The documented way to replace templates: kubectl delete, kubectl create."""
    provider.templates(template("t", labels={KEY: group_name}, annotations=counts(0, 9, 2)))
    provider.configure_for(KEY, more="prune: true\n")
    wait_group(kubectl, group_name)
    eventually(lambda: len(nodes_of(kubectl, group_name)) == 2, describe="its nodes are there")
    uid = group_of(kubectl, group_name)["metadata"]["uid"]
    nodes = {n["metadata"]["uid"] for n in nodes_of(kubectl, group_name)}
    provider.remove(TEMPLATES)
    provider.waits_for("InvalidTemplates", TEMPLATES, "does not exist")
    eventually(
        lambda: condition_of(kubectl, group_name, "TemplateResolved"),
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


def condition_of(kubectl: Kubectl, name: str, kind: str) -> dict[str, Any]:
    conditions = {c["type"]: c for c in status_of(kubectl, name)["conditions"]}
    found: dict[str, Any] = conditions[kind]
    return found


def test_the_config_deleted_removes_nothing(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    provider.templates(template("t", labels={KEY: group_name}))
    provider.configure_for(KEY, more="prune: true\n")
    wait_group(kubectl, group_name)
    provider.remove(CONFIG)
    eventually(lambda: "provider config is gone" in operator.log(), describe="that is told")
    assert NOT_DERIVED_SINCE_ANNOTATION not in annotations_of(kubectl, group_name)


def test_a_group_no_longer_derived_is_marked_and_pruned_only_when_asked(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    stays, goes = f"{group_name}-stays", f"{group_name}-goes"
    both = [template(name, labels={KEY: name}) for name in (stays, goes)]
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


def gone(kubectl: Kubectl, name: str) -> bool:
    try:
        group_of(kubectl, name)
    except KubectlError as error:
        return "NotFound" in error.stderr
    return False


def test_another_key_takes_effect_while_running(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    old, new = f"{group_name}-old", f"{group_name}-new"
    provider.templates(template("t", labels={KEY: old, "example.com/pool": new}))
    provider.configure_for(KEY)
    wait_group(kubectl, old)
    provider.configure_for("example.com/pool")
    wait_group(kubectl, new)
    eventually(
        lambda: annotations_of(kubectl, old)[NOT_DERIVED_SINCE_ANNOTATION],
        describe="the group of the old key is kept, and marked",
    )


def test_one_value_of_several_templates(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    provider.templates(
        template("b", labels={KEY: group_name}, cpu=8),
        template("a", labels={KEY: group_name}, cpu=4),
    )
    provider.configure_for(KEY)
    provider.waits_for("TemplatesDiffer", "cpu")
    eventually(
        lambda: status_of(kubectl, group_name)["resolvedTemplate"]["status"]["capacity"]["cpu"],
        lambda cpu: cpu == "4",
        describe="the first by name is the template",
    )


def test_another_namespace_and_another_name(
    harness: Harness, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    """ConfigMaps that live beside cluster-autoscaler; the terminal set up for its provider."""
    namespace = f"{group_name}-ca"
    kubectl("create", "namespace", namespace)
    try:
        role = ["--resource=configmaps", "--verb=list,watch", f"--namespace={namespace}"]
        kubectl("create", "role", "reader", *role)
        account = f"--serviceaccount={NAMESPACE}:kwok-operator"
        kubectl("create", "rolebinding", "reader", "--role=reader", account, *role[2:])
        text = "apiVersion: v1alpha1\nreadNodesFrom: configmap\nconfigmap: {name: theirs}\n"
        text += f"nodegroups: {{fromNodeLabelKey: {KEY}}}\n"
        nodes = documents(template("t", labels={KEY: group_name}))
        for name, data in (("mine", {"config": text}), ("theirs", {"config": nodes})):
            found = configmap(name, **data)
            found["metadata"]["namespace"] = namespace
            kubectl.apply(found)
        harness.start(
            f"--provider-config-namespace={namespace}",
            environ={
                "KWOK_PROVIDER_CONFIGMAP": "mine",
                "KWOK_PROVIDER_MODE": "local",
                "KUBERNETES_SERVICE_HOST": "https://127.0.0.1",
                "KUBERNETES_SERVICE_PORT": "6443",
            },
        )
        wait_group(kubectl, group_name)
        scale(kubectl, group_name, 1)
        wait_ready(kubectl, group_name)
    finally:
        kubectl("delete", "namespace", namespace, "--wait=false")


def test_a_restart_says_and_writes_nothing_new(
    harness: Harness, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    harness.start()
    provider.templates(template("t", labels={KEY: group_name}, annotations=counts(0, 5, 2)))
    provider.configure_for(KEY)
    wait_group(kubectl, group_name)
    wait_ready(kubectl, group_name)
    scale(kubectl, group_name, 1)
    wait_ready(kubectl, group_name)
    before = group_of(kubectl, group_name)["metadata"]["generation"]
    process = harness.start()
    eventually(lambda: "provider config: " in process.log(), describe="it has made a pass")
    assert group_of(kubectl, group_name)["metadata"]["generation"] == before
    assert group_of(kubectl, group_name)["spec"]["targetSize"] == 1
