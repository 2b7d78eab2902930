"""The manifests of `kwok-operator install`: order, image, and when they are there."""

import json
from typing import Any

import pytest

from kwok_operator.errors import ManifestError
from kwok_operator.formats.manifests import (
    Manifest,
    as_stream,
    identity,
    image_name,
    in_order,
    is_rolled_out,
    read_manifests,
    reference,
    with_image,
)


def manifest(kind: str, name: str = "a", *, group: str = "", **rest: Any) -> Manifest:
    version = f"{group}/v1" if group else "v1"
    metadata = {"name": name} | rest.pop("metadata", {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def test_what_others_need_goes_first() -> None:
    kinds = (
        "Deployment ServiceMonitor RoleBinding Role ConfigMap ServiceAccount "
        "CustomResourceDefinition Namespace"
    ).split()
    assert [item["kind"] for item in in_order(map(manifest, kinds))] == [
        *("Namespace", "CustomResourceDefinition", "ServiceAccount", "Role", "RoleBinding"),
        *("ConfigMap", "ServiceMonitor", "Deployment"),
    ]


def test_within_a_kind_the_order_is_that_of_the_manifests() -> None:
    given = [manifest("Role", name) for name in ("b", "a", "c")]
    assert in_order(given) == given


def test_references_are_kubectls() -> None:
    assert reference(manifest("Namespace", "x")) == "namespace/x"
    assert reference(manifest("Deployment", "x", group="apps")) == "deployment.apps/x"


def test_an_object_is_known_by_group_kind_namespace_and_name() -> None:
    one = manifest("Role", "x", group="rbac", metadata={"namespace": "a"})
    other = manifest("Role", "x", group="rbac", metadata={"namespace": "b"})
    assert identity(one) == ("rbac", "Role", "a", "x") != identity(other)


def pod_of(*images: str, init: str | None = None) -> Manifest:
    pod: dict[str, Any] = {"containers": [{"name": "c", "image": image} for image in images]}
    if init:
        pod["initContainers"] = [{"name": "i", "image": init}]
    return manifest("Deployment", group="apps", spec={"template": {"spec": pod}})


def test_the_image_is_that_of_this_projects_containers() -> None:
    given = [pod_of("kwok-operator:0.1.0", "cluster-autoscaler:1.35", init="kwok-operator")]
    (changed,) = with_image(given, "registry.example.com:5000/a/b@sha256:0")
    pod = changed["spec"]["template"]["spec"]
    assert [c["image"] for c in pod["initContainers"] + pod["containers"]] == [
        "registry.example.com:5000/a/b@sha256:0",
        "registry.example.com:5000/a/b@sha256:0",
        "cluster-autoscaler:1.35",
    ]
    assert given == [pod_of("kwok-operator:0.1.0", "cluster-autoscaler:1.35", init="kwok-operator")]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("kwok-operator", "kwok-operator"),
        ("kwok-operator:1", "kwok-operator"),
        ("host:5000/kwok-operator", "host:5000/kwok-operator"),
        ("host:5000/a/kwok-operator:1@sha256:0", "host:5000/a/kwok-operator"),
    ],
)
def test_an_images_name_has_neither_tag_nor_digest(image: str, name: str) -> None:
    assert image_name(image) == name


def test_a_deployment_is_there_when_all_its_replicas_are() -> None:
    there = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "observedGeneration": 3}
    deployment = manifest("Deployment", metadata={"generation": 3}, spec={"replicas": 2})
    assert not is_rolled_out(deployment)
    assert is_rolled_out(deployment | {"status": there})
    for change in ({"availableReplicas": 1}, {"observedGeneration": 2}, {"replicas": 3}):
        assert not is_rolled_out(deployment | {"status": there | change})


def test_texts_are_read_document_by_document() -> None:
    text = "# nothing\n---\n{apiVersion: v1, kind: A, metadata: {name: a}}\n---\n"
    assert [m["kind"] for m in read_manifests(text, where="file")] == ["A"]


@pytest.mark.parametrize("text", ["[]", "kind: A", "{apiVersion: v1, kind: A}"])
def test_what_is_no_object_is_reported_with_its_place(text: str) -> None:
    with pytest.raises(ManifestError, match="file: document 1 is no object"):
        read_manifests(text, where="file")


def test_objects_for_kubectl_are_no_list() -> None:
    given = [manifest("ConfigMap", data={"a": "1\n2"}), manifest("Secret")]
    lines = as_stream(given).splitlines()
    assert [json.loads(line) for line in lines] == given
