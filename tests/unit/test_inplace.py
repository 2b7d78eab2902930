"""What is written into a node whose template has changed, and what is left alone."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.inplace import Patches, make_patches
from kwok_operator.nodegroups.template import render, resolve
from tests.fakes.store import merge_patch

Json = dict[str, Any]
NAME, UID, ASKED = "web-3zid-000007", "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55", "2026-01-02T03:04:05Z"
US = "kwok-operator"
LIST = "kwok-operator.io/template-taints"


def made(template: Json, *, asked: str = ASKED) -> Json:
    """The node that a group's template makes."""
    node = resolve(Template.model_validate(template), guard=GuardTaint())
    rendered = render(node, group="web", uid=UID, provider_id_prefix="kwok:", endpoint=None)
    body: Json = json.loads(rendered.body(NAME, requested_at=asked, now="", ready=False))
    return body


def shape(**fields: Any) -> Json:
    return {"shape": fields}


def fields(*path: str, keys: Any) -> Json:
    """The fieldsV1 of these keys of a map."""
    owned: Json = {".": {}, **{f"f:{key}": {} for key in keys}}
    for step in reversed(path):
        owned = {f"f:{step}": owned}
    return owned


def created(template: Json) -> Json:
    """A node as the API server holds it after its first write; status has no owner."""
    node = made(template)
    metadata = node["metadata"]
    metadata.update(uid="u-1", resourceVersion="5")
    metadata["managedFields"] = [
        written(US, "metadata", part, keys=metadata[part]) for part in ("labels", "annotations")
    ]
    return node


def written(manager: str, *path: str, keys: Any, subresource: str = "") -> Json:
    entry = {"manager": manager, "operation": "Update", "fieldsV1": fields(*path, keys=keys)}
    return entry | ({"subresource": subresource} if subresource else {})


def others_write(node: Json, *path: str, values: Json, manager: str = "kubectl-edit") -> Json:
    """Somebody else sets these keys, and owns them alone from then on."""
    place = node
    for step in path:
        place = place.setdefault(step, {})
    place.update(values)
    for entry in node["metadata"]["managedFields"]:
        owned = entry["fieldsV1"]
        for step in path:
            owned = owned.get(f"f:{step}", {})
        for key in values:
            owned.pop(f"f:{key}", None)
    node["metadata"]["managedFields"].append(written(manager, *path, keys=values))
    return node


def patches(live: Json, template: Json) -> Patches:
    return make_patches(live, made(template, asked="2027-01-01T00:00:00Z"), manager=US)


def patched(live: Json, template: Json) -> Json:
    todo, node = patches(live, template), copy.deepcopy(live)
    for patch in (todo.status, todo.rest):
        node = merge_patch(node, patch or {})
    return node


def labels(node: Json) -> Json:
    found: Json = node["metadata"]["labels"]
    return found


class TestLabelsAndAnnotations:
    def test_new_and_changed_ones_are_set(self) -> None:
        live = created(shape(labels={"pool": "a"}))
        node = patched(live, shape(labels={"pool": "b", "tier": "x"}))
        assert (labels(node)["pool"], labels(node)["tier"]) == ("b", "x")

    def test_what_only_the_former_template_had_goes(self) -> None:
        live = created({"node": {"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}}})
        node = patched(live, {})
        assert "a" not in labels(node)
        assert "b" not in node["metadata"]["annotations"]

    def test_what_others_added_stays(self) -> None:
        live = others_write(created({}), "metadata", "labels", values={"by-hand": "1"})
        assert labels(patched(live, shape(labels={"a": "b"})))["by-hand"] == "1"

    def test_one_of_ours_that_was_changed_by_hand_is_set_right(self) -> None:
        live = others_write(
            created(shape(labels={"pool": "a"})), "metadata", "labels", values={"pool": "mine"}
        )
        assert labels(patched(live, shape(labels={"pool": "a"}, cpu=1)))["pool"] == "a"

    def test_one_of_ours_that_somebody_took_over_is_not_taken_out(self) -> None:
        live = others_write(
            created(shape(labels={"pool": "a"})), "metadata", "labels", values={"pool": "mine"}
        )
        assert labels(patched(live, {}))["pool"] == "mine"

    def test_nor_one_that_somebody_else_applied_as_well(self) -> None:
        live = created(shape(labels={"pool": "a"}))
        shared = written("argocd", "metadata", "labels", keys=["pool"])
        live["metadata"]["managedFields"].append(shared)
        assert labels(patched(live, {}))["pool"] == "a"

    def test_one_that_somebody_has_removed_comes_back(self) -> None:
        live = created(shape(labels={"pool": "a"}))
        del labels(live)["pool"]
        assert labels(patched(live, shape(labels={"pool": "a"}, cpu=1)))["pool"] == "a"

    def test_without_notes_of_who_wrote_what_nothing_is_taken_out(self) -> None:
        live = created(shape(labels={"pool": "a"}, resources={"example.com/x": 1}))
        live["metadata"]["managedFields"] = []
        node = patched(live, {})
        assert labels(node)["pool"] == "a"
        assert node["status"]["capacity"]["example.com/x"] == "1"


class TestResources:
    def test_they_become_those_of_the_template(self) -> None:
        node = patched(created(shape(cpu=4)), shape(cpu=8, reserved={"cpu": 1}))
        assert node["status"]["capacity"]["cpu"] == "8"
        assert node["status"]["allocatable"]["cpu"] == "7"

    def test_one_that_the_template_has_no_more_goes(self) -> None:
        node = patched(created(shape(resources={"example.com/x": 1})), {})
        assert "example.com/x" not in node["status"]["capacity"]
        assert "example.com/x" not in node["status"]["allocatable"]

    def test_one_that_we_have_written_later_goes_too(self) -> None:
        live = created(shape(resources={"example.com/x": 1}))
        entry = written(US, "status", "capacity", keys=["example.com/x"], subresource="status")
        live["metadata"]["managedFields"].append(entry)
        assert "example.com/x" not in patched(live, {})["status"]["capacity"]

    def test_one_that_a_device_plugin_added_stays(self) -> None:
        live = others_write(created({}), "status", "capacity", values={"example.com/dongle": "3"})
        node = patched(live, shape(cpu=4))
        assert node["status"]["capacity"]["example.com/dongle"] == "3"

    @pytest.mark.parametrize("same", ["4", "4000m", "4.0", 4])
    def test_another_notation_is_no_change(self, same: object) -> None:
        live = created(shape(cpu=4))
        live["status"]["capacity"]["cpu"] = live["status"]["allocatable"]["cpu"] = same
        assert patches(live, shape(cpu=4, labels={"a": "b"})).status is None

    def test_architecture_and_system_follow(self) -> None:
        node = patched(created({}), shape(arch="arm64", os="windows"))
        info = node["status"]["nodeInfo"]
        assert (info["architecture"], info["operatingSystem"]) == ("arm64", "windows")

    def test_what_kwok_filled_in_stays(self) -> None:
        live = created({})
        live["status"]["nodeInfo"]["bootID"] = "b"
        assert patched(live, shape(arch="arm64"))["status"]["nodeInfo"]["bootID"] == "b"


GPU = {"key": "gpu", "effect": "NoSchedule"}
GUARD = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
HAND = {"key": "by-hand", "value": "1", "effect": "NoExecute", "timeAdded": ASKED}


def taints(node: Json) -> list[Json]:
    found: list[Json] = node["spec"]["taints"]
    return found


class TestTaints:
    def test_a_new_node_lists_those_of_its_template(self) -> None:
        annotations = made(shape(taints=[GPU]))["metadata"]["annotations"]
        assert annotations[LIST] == "gpu:NoSchedule,kwok-provider:NoSchedule"

    def test_new_ones_are_added_and_listed(self) -> None:
        node = patched(created({}), shape(taints=[GPU]))
        assert taints(node) == [GPU, GUARD]
        assert node["metadata"]["annotations"][LIST] == "gpu:NoSchedule,kwok-provider:NoSchedule"

    def test_one_that_the_template_has_no_more_goes(self) -> None:
        assert taints(patched(created(shape(taints=[GPU])), {})) == [GUARD]

    def test_one_that_somebody_added_stays_as_it_is(self) -> None:
        live = created(shape(taints=[GPU]))
        taints(live).insert(0, HAND)
        assert taints(patched(live, {})) == [HAND, GUARD]

    def test_one_with_another_value_is_set_right(self) -> None:
        live = created(shape(taints=[{**GPU, "value": "a"}]))
        assert {**GPU, "value": "b"} in taints(patched(live, shape(taints=[{**GPU, "value": "b"}])))

    def test_one_that_stays_keeps_its_time(self) -> None:
        live = created(shape(taints=[{**HAND, "timeAdded": None}]))
        live["spec"]["taints"] = [HAND, GUARD]
        template = shape(taints=[{k: HAND[k] for k in ("key", "value", "effect")}, GPU])
        assert HAND in taints(patched(live, template))

    def test_a_node_without_a_list_keeps_all(self) -> None:
        live = created(shape(taints=[GPU]))
        del live["metadata"]["annotations"][LIST]
        node = patched(live, shape(taints=[{**GPU, "key": "fpga"}]))
        assert [t["key"] for t in taints(node)] == ["gpu", "kwok-provider", "fpga"]

    def test_the_last_one_goes_with_its_list(self) -> None:
        live, wanted = created({}), made({})
        wanted["spec"]["taints"] = []
        del wanted["metadata"]["annotations"][LIST]
        live["metadata"]["managedFields"] = []  # even where nobody knows who wrote the list
        todo = make_patches(live, wanted, manager=US)
        assert todo.rest is not None
        assert todo.rest["spec"] == {"taints": []}
        assert todo.rest["metadata"]["annotations"][LIST] is None


def test_identity_is_never_touched() -> None:
    live = created(shape(labels={"a": "b"}, cpu=4))
    live["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    live["status"]["addresses"] = [{"type": "Hostname", "address": "localhost"}]
    todo = patches(live, shape(cpu=8, labels={"c": "d"}, taints=[GPU], arch="arm64"))
    assert todo.status is not None
    assert todo.rest is not None
    assert set(todo.status["status"]) == {"capacity", "allocatable", "nodeInfo"}
    assert set(todo.rest) == {"metadata", "spec"}
    assert set(todo.rest["metadata"]) == {"labels", "annotations"}
    assert set(todo.rest["spec"]) == {"taints"}
    touched = todo.rest["metadata"]["labels"].keys() | todo.rest["metadata"]["annotations"].keys()
    arch = {"kubernetes.io/arch", "beta.kubernetes.io/arch"}
    ours = {"kwok-operator.io/template-hash", "kwok-operator.io/alike"}
    assert touched == {"a", "c", *arch, LIST, *ours}


def test_the_hash_comes_last() -> None:
    todo = patches(created({}), shape(cpu=4))
    assert todo.status is not None
    assert "template-hash" not in json.dumps(todo.status)
    assert "template-hash" in json.dumps(todo.rest)


def test_a_node_that_is_as_it_should_be_gets_no_patch() -> None:
    template = shape(cpu=4, labels={"a": "b"}, taints=[GPU], resources={"example.com/x": 1})
    assert patches(created(template), template) == Patches(None, None)


some = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]))
templates = st.builds(
    lambda labels, resources, taints: shape(
        labels=labels,
        resources={f"example.com/{k}": v for k, v in resources.items()},
        taints=[{"key": k, "value": v, "effect": "NoSchedule"} for k, v in taints.items()],
    ),
    some,
    some,
    some,
)


@given(before=templates, after=templates, by_hand=some)
def test_a_patched_node_is_as_new_but_for_others(before: Json, after: Json, by_hand: Json) -> None:
    live = created(before)
    others = {f"hand-{key}": value for key, value in by_hand.items()}
    others_write(live, "metadata", "labels", values=others)
    others_write(live, "status", "capacity", values=others)
    taints(live).extend({"key": key, "effect": "NoSchedule"} for key in others)
    node, new = patched(live, after), made(after)
    assert labels(node) == labels(new) | others
    assert node["status"]["capacity"] == new["status"]["capacity"] | others
    assert node["metadata"]["annotations"] == new["metadata"]["annotations"]
    wanted = [*taints(new), *({"key": key, "effect": "NoSchedule"} for key in others)]
    assert sorted(map(json.dumps, taints(node))) == sorted(map(json.dumps, wanted))
    assert patches(node, after) == Patches(None, None)
