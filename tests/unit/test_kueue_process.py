"""Kueue as a process of a rehearsal, and CRDs of cluster-autoscaler: what is installed, and what is
refused.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from kwok_operator.rehearsal.kueue.setup import (
    KueueSetup,
    KueueSetupError,
    clients_of,
    configuration_in,
    set_up,
)
from kwok_operator.rehearsal.scenario.manifests import manifest
from kwok_operator.rehearsal.scenario.workload import ScenarioWorkload
from tests.fakes.kueue import CONFIGURATION, LOCAL_QUEUE, manifests
from tests.fakes.scenarios import Told, checked, scenario


def of_kind(given: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(each for each in given if each["kind"].startswith(kind))


KUEUE = {"name": "kueue", "kueue": {"binary": "tool"}}
FILES = {"manifests": yaml.safe_dump_all(manifests())}
CRD = yaml.safe_dump(of_kind(manifests(), "CustomResource"))
OTHER = {"service": {"namespace": "jobset-system", "name": "jobset-webhook-service"}}


OF_KUEUE = b" sigs.k8s.io/kueue/cmd/kueuectl "


def setup(given: list[dict[str, Any]], own: dict[str, Any] | None = None) -> KueueSetup:
    return set_up(given, own, webhook_port=1234, health_port=5678, certificates="/certificates")


def test_all_webhooks_lead_to_one_port_and_nothing_else_is_changed() -> None:
    given = manifests()
    foreign = copy.deepcopy(of_kind(given, "CustomResource"))
    foreign["metadata"]["name"], foreign["spec"]["group"] = "jobsets.x", "jobset.x-k8s.io"
    foreign["spec"]["conversion"]["webhook"]["clientConfig"] = copy.deepcopy(OTHER)
    given.append(foreign)
    before = copy.deepcopy(given)
    found = setup(given)
    assert given == before
    clients = [client for each in (*found.crds, *found.objects) for client in clients_of(each)]
    assert [client.get("port") for client in clients] == [1234, None, 1234, 1234]
    for client in clients:
        client.pop("port", None)
    kept = ("CustomResourceDefinition", *("MutatingWebhook", "ValidatingWebhook"))
    assert [*found.crds, *found.objects[2:-1]] == [
        each for prefix in kept for each in before if each["kind"].startswith(prefix)
    ]
    made = [each for each in found.objects if each["apiVersion"] == "v1"]
    assert [each["kind"] for each in made] == ["Namespace", "Secret", "Service"]
    assert made[-1]["spec"]["externalName"] == "localhost"


def test_the_users_configuration_is_kept_but_for_what_the_place_decides() -> None:
    own = {
        **CONFIGURATION,
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "leaderElection": {"leaderElect": True},
        "featureGates": {"PartialAdmission": False},
        "internalCertManagement": {"enable": False, "webhookSecretName": "mine"},
        "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
    }
    found = setup(manifests(), own)
    assert found.secret == ("kueue-system", "mine")
    assert found.configuration == own | {
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": "127.0.0.1:5678"},
        "metrics": {"bindAddress": "0", "enableClusterQueueResources": True},
        "webhook": {"host": "127.0.0.1", "port": 1234, "certDir": "/certificates"},
        "leaderElection": {"leaderElect": False},
        "featureGates": {"PartialAdmission": False, "VisibilityOnDemand": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": "kueue-webhook-service",
            "webhookSecretName": "mine",
        },
    }


@pytest.mark.parametrize(
    ("more", "suspends"),
    [
        ({}, True),
        ({"integrations": {"frameworks": ["pod", "batch/job"]}}, True),
        ({"integrations": {"frameworks": ["pod"]}}, False),
        ({"managedJobsNamespaceSelector": {"matchLabels": {"team": "a"}}}, False),
    ],
)
def test_a_job_shows_readiness_only_if_kueue_would_suspend_it(
    more: dict[str, Any], suspends: bool
) -> None:
    assert setup(manifests(), {**CONFIGURATION, **more}).suspends_jobs is suspends


def _drop(*kinds: str) -> Callable[[list[dict[str, Any]]], None]:
    def change(given: list[dict[str, Any]]) -> None:
        given[:] = [each for each in given if not each["kind"].startswith(kinds)]

    return change


def _rename(given: list[dict[str, Any]]) -> None:
    of_kind(given, "Validating")["metadata"]["name"] = "validating-webhook-configuration"


def _two_services(given: list[dict[str, Any]]) -> None:
    of_kind(given, "Mutating")["webhooks"][0]["clientConfig"] = OTHER


def _another_conversion(given: list[dict[str, Any]]) -> None:
    conversion = of_kind(given, "CustomResource")["spec"]["conversion"]
    conversion["webhook"]["clientConfig"] = copy.deepcopy(OTHER)


def _conversion_elsewhere(given: list[dict[str, Any]]) -> None:
    conversion = of_kind(given, "CustomResource")["spec"]["conversion"]
    conversion["webhook"]["clientConfig"] = {"url": "https://other.example/convert"}


def _no_namespace(given: list[dict[str, Any]]) -> None:
    for each in given:
        for client in clients_of(each):
            del client["namespace"]


def _another_kind(given: list[dict[str, Any]]) -> None:
    text = json.dumps({**CONFIGURATION, "kind": "Config"})
    of_kind(given, "ConfigMap")["data"] = {"c.yaml": text}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_drop("CustomResource"), "has no CRD of kueue.x-k8s.io"),
        (_drop("Mutating", "Validating"), "has no webhooks of a Service"),
        (_drop("Mutating"), "as MutatingWebhookConfiguration none, and Kueue looks for"),
        (_rename, "looks for kueue-validating-webhook-configuration"),
        (
            _two_services,
            "several Services, jobset-system/jobset-webhook-service, kueue-system",
        ),
        (
            _another_conversion,
            "which is converted by the Service jobset-system/",
        ),
        (
            _conversion_elsewhere,
            "localqueues.kueue.x-k8s.io, which is converted by no Service",
        ),
        (_no_namespace, "without a namespace"),
        (_drop("ConfigMap"), "has no ConfigMap with a Configuration"),
        (_another_kind, "is no Configuration of config.kueue.x-k8s.io"),
    ],
)
def test_manifests_with_which_it_would_not_start(
    change: Callable[[list[dict[str, Any]]], None], said: str
) -> None:
    given = manifests()
    change(given)
    with pytest.raises(KueueSetupError, match=said):
        setup(given)


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "kind: Configuration", "---\n---\n"])
def test_no_configuration(text: str) -> None:
    with pytest.raises(KueueSetupError):
        configuration_in(text, where="c.yaml")


def test_nothing_is_wrong_with_what_is_right() -> None:
    files = {**FILES, "c.yaml": yaml.safe_dump(CONFIGURATION)}
    fields = {"configuration": "c.yaml", "objects": [{"object": LOCAL_QUEUE}]}
    process = {"name": "kueue", "kueue": {"binary": "tool", **fields}}
    assert checked(scenario(processes=[process]), Told(files)).findings == ()


def test_crds_of_another_version_have_a_field_that_the_program_does_not_know() -> None:
    given = manifests()
    (version, *_) = of_kind(given, "CustomResource")["spec"]["versions"]
    fields = {"new": {"type": "string", "enum": ["a.b"]}}
    version["schema"]["openAPIV3Schema"]["properties"] = {"spec": {"items": {"properties": fields}}}
    files = {"manifests": yaml.safe_dump_all(given)}
    program = b'\x7fELF sigs.k8s.io/kueue/pkg/webhooks json:"spec" json:"old,omitempty"'
    (found,) = checked(scenario(processes=[KUEUE]), Told(files, content=program)).findings
    assert "kueue.manifests: 'manifests' are of another" in found.message
    assert "spec.new of LocalQueue" in found.message
    for content in (program.replace(b"old", b"new"), b"#!/bin/sh"):
        assert checked(scenario(processes=[KUEUE]), Told(files, content=content)).findings == ()


def test_what_a_kustomization_makes_is_not_checked() -> None:
    found = checked(scenario(processes=[KUEUE]), Told({"manifests": ""}, complete=False))
    assert (found.findings, len(found.unchecked)) == ((), 1)


@pytest.mark.parametrize(
    ("processes", "around", "field", "said"),
    [
        ([KUEUE, {**KUEUE, "name": "b"}], Told(FILES), "processes[1].kueue", "remove one"),
        ([KUEUE], Told(FILES, own_cluster=False), "processes[0].kueue", "leave --kubeconfig out"),
        ([KUEUE], Told(FILES, content=b"\x7fELF" + OF_KUEUE), "kueue.binary", "is no Kueue"),
        ([KUEUE], Told(), "kueue.manifests", "isn't there; they are sought there"),
        ([KUEUE], Told({"manifests": "a: b: c"}), "kueue.manifests", "manifests:1: is not YAML"),
        ([KUEUE], Told({"manifests": "- 1"}), "kueue.manifests", "is no object"),
        ([KUEUE], Told({"manifests": ""}), "kueue.manifests", "has no CRD of kueue.x-k8s.io"),
        (
            [{"name": "kueue", "kueue": {"binary": "tool", "configuration": "c.yaml"}}],
            Told({**FILES, "c.yaml": "a: b"}),
            "kueue.configuration",
            "is no Configuration",
        ),
        (
            [{"name": "kueue", "kueue": {"binary": "tool", "objects": ["gone.yaml"]}}],
            Told(FILES),
            "kueue.objects[0]",
            "isn't there",
        ),
        ([{**KUEUE, "ready": {"says": "a"}}], Told(FILES), "processes[0]", "take it out"),
    ],
)
def test_what_is_refused(processes: list[Any], around: Told, field: str, said: str) -> None:
    found = checked(scenario(processes=processes), around).findings
    assert [field in str(each) and said in str(each) for each in found] == [True], found


@pytest.mark.parametrize(
    ("fields", "files", "said"),
    [
        ({"flags": {"expander": "price"}}, {}, ""),
        ({"flags": {"enable-provisioning-requests": "false"}}, {}, ""),
        ({"flags": {"enable_provisioning_requests": "true"}}, {}, "isn't there; enable-prov"),
        ({"flags": {"enable-provisioning-requests": "true"}}, {"crds": CRD}, ""),
        ({"flags": {"capacity-quotas-enabled": "true"}}, {"crds": "kind: A"}, "has no CRD"),
        ({"crds": "mine"}, {}, "'mine' isn't there"),
        ({"crds": "mine"}, {"mine": CRD}, ""),
    ],
)
def test_crds_of_cluster_autoscaler(
    fields: dict[str, Any], files: dict[str, str], said: str
) -> None:
    process = {"name": "ca", "clusterAutoscaler": {"binary": "ca", **fields}}
    found = checked(scenario(processes=[process]), Told(files)).findings
    assert [said in str(each) for each in found] == [True] * bool(said), found


def test_labels_are_those_of_the_object() -> None:
    fields = {"name": "a", "labels": {"queue": "b"}, "pods": {"cpu": 1}}
    job = manifest(ScenarioWorkload.model_validate({**fields, "kind": "Job"}), 0)
    assert job["metadata"]["labels"]["queue"] == "b"
    assert "queue" not in job["spec"]["template"]["metadata"]["labels"]
    with pytest.raises(ValueError, match="write it into pods"):
        ScenarioWorkload.model_validate({**fields, "kind": "Pods"})
