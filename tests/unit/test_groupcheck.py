"""What the API server would refuse in an object of one of our kinds, said without one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.constants import KIND, POOL_KIND, PROFILE_KIND
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.schema.check import check_group, check_pool, check_profile
from tests import cloudmanifests, manifests, podmanifests
from tests.cloudmanifests import cloud, pool
from tests.manifests import Manifest, group, shape
from tests.podmanifests import profile

GOOD = manifests.GOOD | cloudmanifests.GOOD | podmanifests.GOOD
BAD = manifests.BAD | cloudmanifests.BAD | podmanifests.BAD
CHECKS = {KIND: check_group, POOL_KIND: check_pool, PROFILE_KIND: check_profile}


def sentences(manifest: Manifest) -> list[str]:
    return [problem.message for problem in CHECKS[manifest["kind"]](manifest)]


@pytest.mark.parametrize(("name", "manifest"), GOOD.items())
def test_what_is_right_passes(name: str, manifest: Manifest) -> None:
    assert sentences(manifest) == []


@pytest.mark.parametrize(("name", "wrong"), BAD.items())
def test_each_mistake_is_reported_once(name: str, wrong: tuple[Manifest, str]) -> None:
    manifest, part = wrong
    (sentence,) = sentences(manifest)
    assert part in sentence
    assert sentence.startswith(("metadata", "spec"))


@pytest.mark.parametrize(("domain", "findings"), [({}, 1), ({"domain": "pool"}, 0)])
def test_units_by_a_generated_name_are_refused(domain: Manifest, findings: int) -> None:
    manifest = manifests.out("pool-0", **domain)
    manifest["metadata"] = {"generateName": "pool-"}
    found = sentences(manifest)
    assert len(found) == findings
    assert all("which metadata.generateName leaves open" in sentence for sentence in found)


FIELD = "there is no such field"


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (group({"targetSizes": 1}), f"spec.targetSizes: {FIELD}; did you mean targetSize?"),
        (group({"minSize": 1}), f"spec.minSize: {FIELD}; write spec.autoscaling.minSize"),
        (shape(CPU=1), f"spec.template.shape.CPU: {FIELD}; did you mean cpu?"),
        ({**group(), "sepc": {}}, f"sepc: {FIELD}; did you mean spec?"),
        (group({}, label={"a": "b"}), f"metadata.label: {FIELD}; did you mean labels?"),
        (
            {**group(), "apiVersion": "kwok-operator.io/v1"},
            "apiVersion: is 'kwok-operator.io/v1'; write kwok-operator.io/v1alpha1",
        ),
        (
            cloud(delay={"fixed": "1s"}),
            f"spec.cloud.delay: {FIELD}; write spec.cloud.failures.slowDeletion.delay",
        ),
        (
            pool({"targetSize": 1}),
            f"spec.targetSize: {FIELD}; known here: error, instances, outage, resources",
        ),
        (pool({"code": "x"}), f"spec.code: {FIELD}; write spec.error.code"),
        (
            profile({"delay": {"fixed": "1s"}}),
            f"spec.delay: {FIELD}; write spec.start.delay or spec.termination.delay",
        ),
        (
            group({"autoscaling": {"minSize": 5, "maxSize": 3}}),
            "spec.autoscaling.minSize: autoscaling.minSize must not be greater than"
            " autoscaling.maxSize: lower minSize or raise maxSize; it is 5",
        ),
        (
            shape(labels={"ok": "a", "a b": "c"}),
            "spec.template.shape.labels: shape.labels: a key must be a name, with a domain or"
            " without, such as pool or example.com/pool; it is 'a b'",
        ),
        (group({"price": {"hourly": ""}}), "spec.price.hourly: is empty; give it a value"),
        ({**group(), "metadata": {}}, "metadata.name: is missing; every object has a name"),
    ],
)
def test_the_remedy_is_named(manifest: Manifest, sentence: str) -> None:
    assert sentences(manifest) == [sentence]


def test_the_path_leads_to_the_value() -> None:
    manifest = shape(taints=[{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "x"}])
    (problem,) = check_group(manifest)
    assert problem.path == ("spec", "template", "shape", "taints", 1, "effect")


def test_status_is_not_looked_at() -> None:
    assert sentences({**group(), "status": {"anything": 1}}) == []


names = st.sampled_from(
    "spec template from nodes name selector matchLabels shape cpu reserved taints labels resources"
    " autoscaling minSize targetSize metadata scaleDown nodesToDelete gpu x".split()
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(manifest=st.dictionaries(names, anything, max_size=4), name=st.just("a") | anything)
@settings(deadline=None, max_examples=200)
def test_whatever_passes_can_be_read(manifest: Manifest, name: Any) -> None:
    whole = {**group(name=name), **manifest}
    for problem in check_group(whole):
        assert "\n" not in problem.message
        return
    KwokNodeGroupSpec.model_validate(whole.get("spec"))
