"""spec.cloud, its status, and KwokCapacityPool as the API server and Python see them."""

from typing import Any

import pytest
from pydantic import ValidationError

from kwok_operator.cloud.api.capacitypool import KwokCapacityPoolSpec
from kwok_operator.cloud.api.cloud import Cloud, ErrorClass, Interruptions
from kwok_operator.cloud.api.delay import Delay

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
    "devices": {
        "after": {"fixed": "90s"},
        "neverPublished": {"serials": "3"},
        "failures": {
            "probability": "0.01",
            "after": {"exponential": {"mean": "6h"}},
            "taint": {"key": "sick", "value": "", "effect": "NoSchedule"},
        },
    },
    "outage": True,
    "outageUnits": ["pool-a-0-1"],
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
        *({"retryAfter": bad} for bad in ("", "never", "5 m", "Never ", "Never5m")),
        *({"failures": {"neverReady": {"probability": bad}}} for bad in ("1.1", "50%", 1, "nan")),
        *({"failures": {"neverReady": {"serials": bad}}} for bad in ("", "1-", "a", "1, 2", "1;2")),
    ],
)
def test_what_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Cloud.model_validate(given)


def test_what_is_stored_is_read_even_where_it_breaks_a_rule() -> None:
    assert Delay.model_validate({}) == Delay()
    odd = {"uniform": {"min": "2m", "max": "1m"}, "fixed": "3s"}
    assert Delay.model_validate(odd).dump() == odd
