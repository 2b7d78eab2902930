"""deploy/ on a real API server, in a cluster of its own, since its CRD comes and goes."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e import standins
from tests.e2e.api import NODES
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.deploying import (
    COMPONENTS,
    DEPLOY,
    OVERLAYS,
    Object,
    Tree,
    by_key,
    containers,
    deployments,
    key_of,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process
from tests.e2e.rights import OPERATOR, kubeconfig_of
from tests.e2e.sources import real_node

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
CRD = "crd/kwoknodegroups.kwok-operator.io"
AT_WORK = {"provider-config", "custom"}
"""Overlays with which the operator works here."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A cluster with nothing of ours, and with the CRDs of others."""
    with bare_cluster("deploy", directory=tmp_path_factory.mktemp("bare")) as (_, kubectl):
        kubectl.apply(standins.crds())
        eventually(
            lambda: kubectl("wait", "--for=condition=Established", *standins.names()),
            describe="the CRDs of others are established",
        )
        served = {f"{version}.{group}" for group, version, *_ in standins.KINDS}
        eventually(
            lambda: served <= {*kubectl.api.names(API_SERVICES)},
            describe="the API server has written down that it serves them",
        )
        yield kubectl


@pytest.fixture(scope="module")
def tree(empty: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(kubectl=empty, directory=tmp_path_factory.mktemp("deploy"))


@pytest.fixture(scope="module")
def before(empty: Kubectl) -> set[tuple[str, str]]:
    return everything(empty)


@pytest.fixture
def clean(empty: Kubectl, before: set[tuple[str, str]]) -> Iterator[None]:
    """What the test makes is gone when it ends."""
    yield
    eventually(
        lambda: everything(empty) - before,
        lambda left: not left,
        describe="nothing is left",
        interval=1,
    )


def everything(kubectl: Kubectl) -> set[tuple[str, str]]:
    """Every object of every kind, but for Events: they go by themselves."""
    kinds = kubectl("api-resources", "--verbs=list", "--output=name").split()
    kinds = [kind for kind in kinds if not kind.startswith(("events", "componentstatuses"))]
    columns = "--output=custom-columns=:.kind,:.metadata.namespace,:.metadata.name"
    found = kubectl("get", ",".join(kinds), "--all-namespaces", columns, "--no-headers")
    return {(kind, f"{space}/{name}") for kind, space, name in map(str.split, found.splitlines())}


def apply(kubectl: Kubectl, path: Path) -> None:
    kubectl("apply", f"--kustomize={path}")


def remove(kubectl: Kubectl, path: Path) -> None:
    # Of kinds that nobody has asked for yet, the API server may take minutes to clean up.
    kubectl("get", "kng,kpool")
    kubectl("delete", f"--kustomize={path}", "--timeout=120s")


def has_its_pods(kubectl: Kubectl, deployment: Object) -> bool:
    namespace = deployment["metadata"]["namespace"]
    labels = deployment["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    found = kubectl.json("get", "pods", f"--namespace={namespace}", f"--selector={selector}")
    return bool(len(found["items"]) == deployment["spec"]["replicas"])


@contextmanager
def deployed(kubectl: Kubectl, tree: Tree, overlay: str) -> Iterator[list[Object]]:
    """An overlay is applied, is there as it was written, and is removed."""
    path, items = tree.path(overlay), tree.render(overlay)
    apply(kubectl, path)
    try:
        read = kubectl.json("get", f"--kustomize={path}")["items"]
        assert {key_of(item) for item in read} == set(by_key(items))
        # kubectl ends with an error where there is a difference.
        assert kubectl("diff", f"--kustomize={path}") == ""
        pods_are_let_in(kubectl, items)
        yield items
    finally:
        remove(kubectl, path)


def pods_are_let_in(kubectl: Kubectl, items: Sequence[Object]) -> None:
    """By the namespace, which lets no others in. There is no node that they could run on."""
    for deployment in deployments(items):
        eventually(
            functools.partial(has_its_pods, kubectl, deployment),
            describe=f"the pods of {deployment['metadata']['name']} are let in",
        )
        namespace = deployment["metadata"]["namespace"]
        run = ("run", "more", "--image=x", f"--namespace={namespace}")
        # Before that, it needs the account that a controller makes in each namespace.
        eventually(
            functools.partial(kubectl.fails, *run),
            lambda refusal: 'violates PodSecurity "restricted:latest"' in refusal,
            describe=f"other pods are not let into {namespace}",
        )


def test_all_components_come_and_go(empty: Kubectl, tree: Tree, clean: None) -> None:
    with deployed(empty, tree, tree.combine("everything", COMPONENTS)):
        for overlay in OVERLAYS:
            if overlay not in AT_WORK:
                empty("apply", f"--kustomize={tree.path(overlay)}", "--dry-run=server")


def start(kubectl: Kubectl, tree: Tree, overlay: str, *, namespace: str, log: Path) -> Process:
    """The operator, with the flags and the environment of its container, and its account."""
    operator = next(c for c in containers(tree.render(overlay)) if c.spec["name"] == "operator")
    flags = [f for f in operator.spec["args"] if f != "run" and not f.startswith("--listen")]
    environ = {e["name"]: e["value"] for e in operator.spec["env"] if "value" in e}
    eventually(
        functools.partial(kubectl, "wait", "--for=condition=Established", CRD),
        describe="our CRD is established",
    )
    kubeconfig = log.with_name(f"{overlay}.kubeconfig")
    kubeconfig.write_text(kubeconfig_of(kubectl, OPERATOR, namespace=namespace))
    process = Process(
        kubeconfig=kubeconfig,
        log=log,
        flags=tuple(flags),
        environ={**environ, "POD_NAME": "pod-1", "POD_NAMESPACE": namespace},
    )
    process.wait_ready()
    return process


def waits_for_the_starter_set(kubectl: Kubectl) -> None:
    """The groups of the component provider-config."""
    eventually(
        lambda: kubectl.json("get", "kng", "--selector=kwok-operator.io/derived=true")["items"],
        lambda items: {item["metadata"]["name"] for item in items} == STARTER_SET,
        describe="the provider config gives groups",
    )


STARTER_SET = {"general-16cpu-64gi", "gpu-8-a100", "memory-8cpu-64gi"}
SAMPLES = {
    "sample-autoscaled": 0,
    "sample-bounds": 2,
    "sample-gpu": 1,
    "sample-live": 2,
    "sample-node": 2,
    "sample-rolling-update": 4,
    "sample-small": 3,
}


@pytest.mark.core
def test_the_operator_works_as_deployed(
    empty: Kubectl, tree: Tree, clean: None, tmp_path: Path
) -> None:
    # Nobody would ever run, or end, a pod that was sent to it.
    keep_off = {"key": "real", "effect": "NoSchedule"}
    empty.apply(real_node("real-1", labels={"kubernetes.io/os": "linux"}, taints=[keep_off]))
    with deployed(empty, tree, "provider-config"):
        process = start(
            empty, tree, "provider-config", namespace="kwok-operator", log=tmp_path / "operator.log"
        )
        try:
            waits_for_the_starter_set(empty)
            apply(empty, DEPLOY / "samples")
            for condition in ("TemplateResolved", "Ready"):
                wait = ("wait", "kng", "--all", f"--for=condition={condition}")
                empty(*wait, "--timeout=240s", timeout=270)
            found = {kng["metadata"]["name"]: kng for kng in empty.json("get", "kng")["items"]}
            assert {name: found[name]["status"]["replicas"] for name in SAMPLES} == SAMPLES
            about = "--field-selector=involvedObject.name=sample-small"
            eventually(
                lambda: empty.json("get", "events", "--namespace=default", about)["items"],
                describe="Events about a group are in the namespace default",
            )
            remove(empty, DEPLOY / "samples")
            # Once the CRD is gone, nobody knows any more whose the nodes are that are left.
            eventually(
                lambda: not empty.api.names(NODES, selector="kwok-operator.io/node-group"),
                describe="the nodes of the samples are gone",
            )
        finally:
            process.terminate()
            empty("delete", "node", "real-1")


def test_it_works_in_a_namespace_of_another_name(
    empty: Kubectl, tree: Tree, clean: None, tmp_path: Path
) -> None:
    with deployed(empty, tree, "custom"):
        process = start(
            empty, tree, "custom", namespace="fake-nodes", log=tmp_path / "operator.log"
        )
        try:
            waits_for_the_starter_set(empty)
            lease = empty.json("get", "lease", "kwok-operator", "--namespace=fake-nodes")
            assert "pod-1" in lease["spec"]["holderIdentity"]
        finally:
            process.terminate()
