"""Karpenter as a process of a rehearsal, and as an arm of a comparison."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.comparison.autoscalers import unlike_autoscalers
from kwok_operator.comparison.loading import LoadedArms, load_arms
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.template import resolve
from kwok_operator.rehearsal.karpenter.groups import offering_of
from kwok_operator.rehearsal.karpenter.instancetypes import as_json, types_of
from kwok_operator.rehearsal.loading import load_scenario
from kwok_operator.rehearsal.programversion import version_in_words
from kwok_operator.rehearsal.scenario.karpenter import Karpenter
from kwok_operator.rehearsal.scenario.karpenterenv import GIVEN_VARIABLES, karpenter_environment
from kwok_operator.rehearsal.surroundings import MAX_BYTES, LocalSurroundings
from tests.fakes.compared import arm
from tests.fakes.karpenter import CRDS, as_text, group, pool
from tests.fakes.scenarios import scenario

MODULE = "sigs.k8s.io/karpenter"
KARPENTER = {"name": "karpenter", "karpenter": {"crds": "crds.yaml"}}
CA = {"name": "ca", "clusterAutoscaler": {}}
SLOW = {"name": "ca", "clusterAutoscaler": {"values": "production"}}


def test_variables() -> None:
    given = {
        "crds": "crds",
        "featureGates": {"NodeOverlay": True, "NodeRepair": False},
        "batchIdle": "1500ms",
        "batchMax": 0.00001,
        "logLevel": "debug",
    }
    found = karpenter_environment(
        Karpenter.model_validate(given),
        kubeconfig="config",
        types="types.json",
        health_port=1,
        metrics_port=2,
    )
    assert found == {
        "BATCH_IDLE_DURATION": "1.500s",
        "BATCH_MAX_DURATION": "0.001s",
        "DISABLE_LEADER_ELECTION": "true",
        "FEATURE_GATES": "NodeOverlay=true,NodeRepair=false",
        "HEALTH_PROBE_PORT": "1",
        "INSTANCE_TYPES_FILE_PATH": "types.json",
        "KUBECONFIG": "config",
        "LOG_LEVEL": "debug",
        "LOG_OUTPUT_PATHS": "stdout",
        "METRICS_PORT": "2",
    }
    assert found.keys() <= GIVEN_VARIABLES.keys()


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (f"\0mod\t{MODULE}\tv1.14.1\th1:abc=\n", "v1.14.1 "),
        (f"\0dep\t{MODULE}\tv1.9.0\n", "v1.9.0 "),
        ("x" * (2**16 - 20) + f"\tmod\t{MODULE}\tv1.8.3\t\n", "v1.8.3 "),
        (
            f'\tmod\t{MODULE}\t(devel)\t\nbuild\t-ldflags="-X {MODULE}/a/b.Version=1.1.5"\n',
            "1.1.5 ",
        ),
        (f"\tmod\t{MODULE}\t(devel)\t\n", ""),
        (f"\tdep\t{MODULE}-provider-aws\tv1.8.3\t\n", ""),
    ],
    ids=[
        "main module",
        "a dependency",
        "in two pieces",
        "by a flag",
        "no version",
        "another module",
    ],
)
def test_version_of_a_program(tmp_path: Path, content: str, version: str) -> None:
    path = tmp_path / "karpenter"
    path.write_text(content, encoding="utf-8")
    sha = f"sha256 {hashlib.sha256(content.encode()).hexdigest()[:12]}"
    assert version_in_words(path, MODULE) == (f"{version}({sha})" if version else sha)


def arms(tmp_path: Path, a: dict[str, Any], b: dict[str, Any], **of_group: Any) -> LoadedArms:
    """Two arms, of which both have a group; by default it has a stock."""
    whole = scenario(apply=[{"object": group(**(of_group or {"cloud": {"stock": 3}}))}])
    whole["arms"] = {"a": {"processes": [a]}, "b": {"processes": [b]}}
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(whole), encoding="utf-8")
    (tmp_path / "crds.yaml").write_text(as_text(*CRDS), encoding="utf-8")
    return load_arms([path], lambda path: LocalSurroundings(path, programs_later=True))


def test_only_one_arm_could_have_it(tmp_path: Path) -> None:
    refused = arms(tmp_path, CA, KARPENTER)
    (finding,) = refused.findings
    assert finding.message.startswith("spec.cloud.stock of batch has no effect on Karpenter's")
    other = KARPENTER | {"karpenter": {"crds": "crds.yaml", "batchIdle": "2s"}}
    alike = arms(tmp_path, KARPENTER, other)
    assert (len(alike.arms), alike.findings) == (2, ())
    # Other CRDs make another arm.
    assert alike.arms[0].files.keys() == {"crds.yaml"}


def test_what_it_brings_is_checked_beside_a_huge_import(tmp_path: Path) -> None:
    whole = scenario(apply=["import.yaml"], processes=[KARPENTER])
    (tmp_path / "import.yaml").write_text("#" * (MAX_BYTES + 1), encoding="utf-8")
    (tmp_path / "crds.yaml").write_text(as_text(*CRDS[1:]), encoding="utf-8")
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(whole), encoding="utf-8")
    (finding,) = load_scenario(path, LocalSurroundings(path, programs_later=True)).findings
    assert "nodepools.karpenter.sh" in finding.message


@pytest.mark.parametrize(
    ("a", "b", "fair"),
    [
        (CA, KARPENTER, False),
        (SLOW, KARPENTER, True),
        (KARPENTER, KARPENTER, None),
        (CA, SLOW, None),
    ],
    ids=["fast", "production", "only Karpenter", "no Karpenter"],
)
def test_whether_two_autoscalers_are_alike(
    a: dict[str, Any], b: dict[str, Any], fair: bool | None
) -> None:
    found = unlike_autoscalers([arm("a", processes=[a]), arm("b", processes=[b])])
    assert (found and found[0]) == fair
    if found:
        assert "maxSize" in found[1]


SLOWLY = {"cloud": {"provisioningDelay": {"fixed": "60s"}}}
OWN_CLASS = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {"nodeRegistrationDelay": "1s"},
}


@pytest.mark.parametrize(
    ("karpenter", "of_group", "said"),
    [
        ({}, SLOWLY, ""),
        ({"nodeClass": {"registrationDelay": "60s"}}, SLOWLY, ""),
        ({"nodeClass": {"registrationDelay": "1s"}}, SLOWLY, "after 1 s"),
        ({"nodePools": [{"object": pool()}, {"object": OWN_CLASS}]}, SLOWLY, "after 1 s"),
        ({"nodePools": [{"object": pool()}], "instanceTypesFrom": "types.json"}, SLOWLY, "a file"),
        ({}, {"cloud": {"readinessDelay": {"fixed": "60s"}}}, "readinessDelay"),
        ({}, {"targetSize": 6}, "targetSize"),
    ],
    ids=["alike", "same delay", "delay", "class", "types", "unpaid", "left beside"],
)
def test_other_nodes_are_not_fair(
    tmp_path: Path, karpenter: dict[str, Any], of_group: dict[str, Any], said: str
) -> None:
    spec = KwokNodeGroupSpec.model_validate(group()["spec"])
    node = resolve(spec.template, guard=spec.guard_taint)
    types = types_of([offering_of("batch", spec, node)])
    (tmp_path / "types.json").write_text(as_json(types), encoding="utf-8")
    preset = KARPENTER | {"karpenter": {"crds": "crds.yaml", **karpenter}}
    loaded = arms(tmp_path, SLOW, preset, **of_group)
    assert loaded.findings == ()
    found = unlike_autoscalers(loaded.arms)
    assert found is not None
    assert (found[0], said in found[1]) == (not said, True)
