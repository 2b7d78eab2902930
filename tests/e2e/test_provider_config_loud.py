"""What cluster-autoscaler's kwok provider does in silence, or dies of, is told here.

- each mistake in the config is an Event on its ConfigMap, one log line and a metric, which name the
  key and the remedy; groups stay as they are; corrected, it heals by itself
- each mistake in the templates likewise, and the groups of the other templates are derived
"""

from typing import Any

import pytest

from tests.e2e.groups import group_of
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process
from tests.e2e.sources import CA, CONFIG, TEMPLATES, Provider, configmap, documents, template

KEY = "kwok-nodegroup"
GOOD = f"apiVersion: v1alpha1\nreadNodesFrom: configmap\nconfigmap: {{name: {TEMPLATES}}}\n"
BY_LABEL = f"nodegroups: {{fromNodeLabelKey: {KEY}}}\n"

CONFIGS: dict[str, tuple[str, str, list[str]]] = {
    "both-keys": (
        GOOD + f"nodegroups: {{fromNodeLabelKey: {KEY}, fromNodeAnnotation: a}}\n",
        "BothKeys",
        ["fromNodeLabelKey", "fromNodeAnnotation", "README"],
    ),
    "no-key": (GOOD + "nodegroups: {}\n", "MissingKey", ["fromNodeLabelKey"]),
    "hostname": (
        GOOD + "nodegroups: {fromNodeLabelKey: kubernetes.io/hostname}\n",
        "HostnameKey",
        ["kubernetes.io/hostname", "without end"],
    ),
    "version": (
        GOOD.replace("v1alpha1", "v1") + BY_LABEL,
        "InvalidValue",
        ["apiVersion", "v1alpha1"],
    ),
    "read-from": (
        GOOD.replace("readNodesFrom: configmap", "readNodesFrom: label") + BY_LABEL,
        "InvalidValue",
        ["readNodesFrom", "label", "cluster", "configmap", "both"],
    ),
    "misspelt": (
        GOOD + BY_LABEL + "nodes: {skipTaints: true}\n",
        "UnknownKey",
        ["nodes.skipTaints", "skipTaint"],
    ),
    "yaml": (GOOD + "nodegroups: {fromNodeLabelKey\n", "InvalidYAML", ["line ", "column "]),
    "type": (GOOD + BY_LABEL + "nodes: {skipTaint: maybe}\n", "InvalidValue", ["skipTaint"]),
}

BAD_NODES: dict[str, tuple[str, str, list[str]]] = {
    "yaml": ("kind: Node\n\tbad", "InvalidTemplates", ["line 2", "column"]),
    "wrong-key": (
        documents(template("lost", labels={"example.com/pool": "a"})),
        "KeyNotFound",
        [KEY, "lost", "example.com/pool"],
    ),
    "no-capacity": (
        documents(template("bare", labels={KEY: "VALUE-x"}) | {"status": {}}),
        "NoCapacity",
        ["bare", "status.capacity"],
    ),
    "min-over-max": (
        documents(
            template(
                "t",
                labels={KEY: "VALUE-x"},
                annotations={f"{CA}/min-count": "5", f"{CA}/max-count": "2"},
            )
        ),
        "InvalidCount",
        ["min-count", "5", "2"],
    ),
    "not-a-number": (
        documents(template("t", labels={KEY: "VALUE-x"}, annotations={f"{CA}/max-count": "many"})),
        "InvalidCount",
        ["max-count", "many"],
    ),
    "desired": (
        documents(
            template("t", labels={KEY: "VALUE-x"}, annotations={f"{CA}/desired-count": "900"})
        ),
        "InvalidCount",
        ["desired-count", "900"],
    ),
}


def problems(operator: Process) -> dict[str, float]:
    """The metric: problems by reason."""
    lines = operator.get("/metrics")[1].splitlines()
    name = 'kwok_operator_provider_config_problems{reason="'
    found = [line.removeprefix(name).split('"} ') for line in lines if line.startswith(name)]
    return {reason: float(count) for reason, count in found}


@pytest.mark.parametrize("mistake", CONFIGS)
def test_a_mistake_in_the_config_is_told_and_heals(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str, mistake: str
) -> None:
    text, reason, parts = CONFIGS[mistake]
    provider.templates(template("t", labels={KEY: group_name}))
    provider.configure(GOOD + BY_LABEL)
    before = eventually(lambda: group_of(kubectl, group_name), describe="it is derived")
    provider.configure(text)
    message = provider.waits_for(reason, *parts)
    assert operator.log().count(message) == 1
    eventually(lambda: problems(operator), lambda p: p[reason] >= 1, describe="the metric says so")
    assert group_of(kubectl, group_name)["spec"] == before["spec"]
    assert "annotations" in before["metadata"]
    assert (
        group_of(kubectl, group_name)["metadata"]["annotations"]
        == (before["metadata"]["annotations"])
    )
    provider.configure(GOOD + BY_LABEL)
    provider.waits_for("ProviderConfigValid")
    eventually(lambda: problems(operator), lambda p: p == {}, describe="the metric is empty")


@pytest.mark.parametrize("mistake", BAD_NODES)
def test_a_mistake_in_the_templates_is_told(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str, mistake: str
) -> None:
    text, reason, parts = BAD_NODES[mistake]
    text = text.replace("VALUE", group_name)
    good = documents(template("good", labels={KEY: group_name}))
    kubectl.apply(configmap(TEMPLATES, templates=f"{good}---\n{text}"))
    provider.configure(GOOD + BY_LABEL)
    wanted = [part.replace("line 2", "line ") for part in parts]
    message = provider.waits_for(reason, *wanted)
    assert operator.log().count(message) == 1
    if reason != "InvalidTemplates":
        eventually(lambda: group_of(kubectl, group_name), describe="the other is derived")
    names = kubectl("get", "kng", "--output=name")
    assert f"{group_name}-x" not in names


def test_what_is_no_node_is_named(operator: Process, provider: Provider, group_name: str) -> None:
    node = template("t", labels={KEY: group_name})
    other: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "Deployment"}
    provider.templates(node, other | {"metadata": {"name": "web"}})
    provider.configure(GOOD + BY_LABEL)
    provider.waits_for("NotANode", "Deployment web", of=TEMPLATES)


def test_no_config_key(operator: Process, provider: Provider, kubectl: Kubectl) -> None:
    kubectl.apply(configmap(CONFIG, configs="apiVersion: v1alpha1\n"))
    provider.waits_for("MissingKey", "config", "configs")


def test_a_huge_config_and_an_alias_bomb_hold_nothing_up(
    operator: Process, provider: Provider, kubectl: Kubectl, group_name: str
) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    for above, below in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{below}: &{below} [{','.join([f'*{above}'] * 10)}]\n"
    kubectl.apply(configmap(TEMPLATES, templates=bomb))
    provider.configure(GOOD + BY_LABEL)
    provider.waits_for("InvalidTemplates", "line ")
    many = documents(
        *(template(f"t{n:04}", labels={KEY: group_name, "n": str(n)}) for n in range(2000))
    )
    text = configmap(TEMPLATES, templates=many)
    kubectl.apply(text, "--server-side", "--force-conflicts")
    eventually(lambda: group_of(kubectl, group_name), describe="it is derived", timeout=120)
    assert operator.get("/healthz")[0] == 200
