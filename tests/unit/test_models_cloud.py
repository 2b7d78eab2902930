"""spec.cloud, its status, and KwokCapacityPool as the API server and Python see them.

- with nothing given, the cloud is perfect; everything can be written and is read
- what the API server refuses by pattern or number is refused here too
- the schemas are structural, described and bounded, as the CRDs need them
- every rule that is more than a pattern has a plain message, and is said again in Python
"""

from typing import Any

import pytest
from pydantic import ValidationError

from kwok_operator.core.cloud.checks import CLOUD_RULES
from kwok_operator.models.base import ApiModel
from kwok_operator.models.capacitypool import KwokCapacityPoolSpec, KwokCapacityPoolStatus
from kwok_operator.models.cloud import Cloud, ErrorClass, Interruptions
from kwok_operator.models.cloudstatus import CloudStatus
from kwok_operator.models.crd import structural_schema
from kwok_operator.models.delay import Delay
from tests.fakes.schema import nodes

EVERYTHING: dict[str, Any] = {
    "seed": "run-1",
    "provisioningDelay": {"lognormal": {"p50": "40s", "p99": "3m"}},
    "readinessDelay": {"uniform": {"min": "5s", "max": "30s"}},
    "startupTaints": [
        {
            "key": "agent",
            "value": "",
            "effect": "NoSchedule",
            "removedAfter": {"normal": {"mean": "45s", "stddev": "10s"}},
        }
    ],
    "lateResources": [{"name": "nvidia.com/gpu", "after": {"samples": ["31s", "1m30s"]}}],
    "failures": {
        "creation": [
            {
                "probability": "0.1",
                "serials": "3,10-19",
                "class": "Other",
                "code": "InsufficientInstanceCapacity",
                "message": "There is no capacity.",
                "after": {"fixed": "20s"},
                "times": 2,
            }
        ],
        "neverRegisters": {"probability": "0.01"},
        "neverReady": {"serials": "7"},
        "slowDeletion": {"probability": "1", "delay": {"exponential": {"mean": "10m"}}},
    },
    "retryAfter": "Never",
    "stock": 60,
    "capacityPools": ["zone-b", "gpu-quota"],
    "interruptions": {
        "hourlyRate": "0.05",
        "maxLifetime": "24h",
        "notice": "30s",
        "taint": {"key": "spot", "value": "gone", "effect": "NoExecute"},
        "atATime": 3,
    },
    "outage": True,
    "flapping": {"period": "10m", "notReady": "0.2", "nodes": "0.5"},
    "apiTrouble": True,
}


@pytest.mark.parametrize("given", [None, {}], ids=repr)
def test_with_nothing_given_it_is_perfect(given: Any) -> None:
    cloud = Cloud.model_validate(given)
    assert cloud == Cloud()
    assert cloud.provisioning_delay is None and cloud.readiness_delay is None
    assert not (cloud.startup_taints or cloud.late_resources or cloud.failures.creation)
    assert cloud.stock is None and not cloud.capacity_pools and not cloud.outage
    assert cloud.interruptions is None and cloud.flapping is None
    assert cloud.retry_after is None


def test_all_of_it() -> None:
    cloud = Cloud.model_validate(EVERYTHING)
    assert cloud.dump() == EVERYTHING
    assert cloud.failures.creation[0].error_class is ErrorClass.OTHER
    assert cloud.interruptions is not None and cloud.interruptions.at_a_time == 3


def test_notice_has_a_taint_unless_it_is_another() -> None:
    assert Interruptions().notice == "2m"
    assert Interruptions().taint.dump() == {
        "key": "kwok-operator.io/interruption",
        "value": "",
        "effect": "NoSchedule",
    }


def test_a_pool() -> None:
    spec = {
        "instances": 50,
        "resources": {"cpu": 512, "memory": "2Ti", "nvidia.com/gpu": "16"},
        "error": {"class": "QuotaExceeded", "code": "VcpuLimitExceeded"},
    }
    pool = KwokCapacityPoolSpec.model_validate(spec)
    assert pool.instances == 50
    assert pool.resources == {"cpu": "512", "memory": "2Ti", "nvidia.com/gpu": "16"}
    assert pool.error.error_class is ErrorClass.QUOTA_EXCEEDED
    assert KwokCapacityPoolSpec().instances is None


@pytest.mark.parametrize(
    "given",
    [
        *({"provisioningDelay": {"fixed": bad}} for bad in ("", "5", "5m\n", "-1s", "1.5h", 300)),
        {"provisioningDelay": {"samples": []}},
        {"provisioningDelay": {"samples": ["1s"] * 101}},
        {"provisioningDelay": {"uniform": {"min": "1s"}}},
        *({"retryAfter": bad} for bad in ("", "never", "5 m", "Never ", "Never5m")),
        *({"failures": {"neverReady": {"probability": bad}}} for bad in ("1.1", "50%", 1, "nan")),
        *({"failures": {"neverReady": {"serials": bad}}} for bad in ("", "1-", "a", "1, 2", "1;2")),
        {"failures": {"creation": [{"probability": "1", "class": "Sometimes"}]}},
        {"failures": {"creation": [{"probability": "1", "code": ""}]}},
        {"failures": {"creation": [{"probability": "1", "code": "two words"}]}},
        {"failures": {"creation": [{"probability": "1", "message": "x" * 129}]}},
        {"failures": {"creation": [{"probability": "1"}] * 9}},
        {"stock": -1},
        {"capacityPools": ["Not_A_Name"]},
        {"seed": ""},
        {"seed": "x" * 65},
        {"lateResources": [{"name": "gpu", "after": {"fixed": "1s"}}]},
        {"interruptions": {"atATime": -1}},
        {"flapping": {}},
    ],
    ids=str,
)
def test_what_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Cloud.model_validate(given)


def test_what_is_stored_is_read_even_where_it_breaks_a_rule() -> None:
    assert Delay.model_validate({}) == Delay()
    odd = {"uniform": {"min": "2m", "max": "1m"}, "fixed": "3s"}
    assert Delay.model_validate(odd).dump() == odd


MODELS: list[type[ApiModel]] = [
    Cloud,
    CloudStatus,
    KwokCapacityPoolSpec,
    KwokCapacityPoolStatus,
]

# What a v1 CRD may contain in a schema; the API server refuses or drops anything else.
_ALLOWED = frozenset(
    """
    additionalProperties description enum format items maxItems maxLength maxProperties maximum
    minItems minLength minimum nullable properties required type x-kubernetes-int-or-string
    x-kubernetes-list-map-keys x-kubernetes-list-type x-kubernetes-preserve-unknown-fields
    x-kubernetes-validations
    """.split()
)


ALL = {
    path: node for model in MODELS for path, node in nodes(structural_schema(model), model.__name__)
}
SPEC = {path: node for path, node in ALL.items() if "Status" not in path.partition(".")[0]}
RULES = [
    (path, rule) for path, node in ALL.items() for rule in node.get("x-kubernetes-validations", ())
]


def test_the_schemas_are_structural() -> None:
    for path, node in ALL.items():
        assert set(node) <= _ALLOWED, path
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert ("items" in node) == (node.get("type") == "array"), path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_every_field_is_described() -> None:
    fields = {p: node for p, node in ALL.items() if "." in p and not p.endswith("[]")}
    assert len(fields) > 100
    for path, node in fields.items():
        text = node["description"]
        assert text[0].isupper() and text.rstrip('"').endswith((".", "}")), path
        assert len(text) < 400, path
        parent, _, name = path.rpartition(".")
        optional = name not in ALL[parent].get("required", ())
        if optional and path in SPEC and node.get("type") != "object":
            assert "Default: " in text, path


def test_what_rules_read_is_bounded() -> None:
    for path, node in SPEC.items():
        if node.get("type") == "string" and "enum" not in node:
            assert node["maxLength"] <= 317, path
        if node.get("type") == "array":
            assert node["maxItems"] <= 100, path
            assert node["x-kubernetes-list-type"] in ("atomic", "map"), path
        if "additionalProperties" in node:
            assert node["maxProperties"] <= 64, path
        if node.get("type") == "integer":
            assert node["minimum"] == 0, path
            assert node["maximum"] <= 1_000_000, path


def test_every_rule_has_a_plain_message_and_is_said_again_in_python() -> None:
    assert len(RULES) > 50
    for path, rule in RULES:
        assert "must" in rule["message"], path
        assert "self." not in rule["message"], path
        mirrored = [words for words in CLOUD_RULES if rule["message"].startswith(words)]
        is_pattern = rule["rule"].startswith(("self.matches(", "isQuantity("))
        assert len(mirrored) == (0 if is_pattern else 1), rule["message"]


@pytest.mark.parametrize(
    ("words", "kept", "broken"),
    [
        ("uniform.min", {"min": "1s", "max": "1s"}, {"min": "2m", "max": "119s"}),
        ("lognormal.p50 must not", {"p50": "1s", "p99": "2s"}, {"p50": "2s", "p99": "1s"}),
        ("lognormal.p50 must be", {"p50": "1s", "p99": "2s"}, {"p50": "0s", "p99": "1s"}),
        ("must have exactly one of fixed", {"fixed": "1s"}, {"fixed": "1s", "samples": ["1s"]}),
        ("must have exactly one of fixed", {"samples": ["1s"]}, {}),
        ("must have probability", {"serials": "1"}, {"class": "Other"}),
        ("interruptions must", {"maxLifetime": "1h"}, {"lifetime": {}, "hourlyRate": "0.1"}),
        ("resources:", {"resources": {"cpu": 1}}, {"resources": {"no such thing": 1}}),
    ],
)
def test_rules_in_python(words: str, kept: dict[str, Any], broken: dict[str, Any]) -> None:
    ((_, keeps),) = [
        (known, rule) for known, rule in CLOUD_RULES.items() if known.startswith(words)
    ]
    assert keeps(kept)
    assert not keeps(broken)


@pytest.mark.parametrize("part", [{}, {"min": "x", "max": "1s"}, {"min": 5, "max": "1s"}], ids=str)
def test_a_rule_lets_pass_what_another_reports(part: dict[str, Any]) -> None:
    assert CLOUD_RULES["uniform.min must not"](part)
    assert CLOUD_RULES["lognormal.p50 must be longer"](part)
