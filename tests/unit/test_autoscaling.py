"""spec.autoscaling and spec.price as Python sees them."""

from typing import Any

import pytest
from pydantic import ValidationError

from kwok_operator.nodegroups.api.autoscaling import Autoscaling, AutoscalingOptions, Price
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec

OPTIONS: dict[str, Any] = {
    "scaleDownUtilizationThreshold": "0.5",
    "scaleDownGpuUtilizationThreshold": "1",
    "scaleDownUnneededTime": "5m",
    "scaleDownUnreadyTime": "1h30m",
    "maxNodeProvisionTime": "0s",
    "zeroOrMaxNodeScaling": False,
    "ignoreDaemonSetsUtilization": True,
}


def test_all_of_it() -> None:
    spec = KwokNodeGroupSpec.model_validate(
        {
            "autoscaling": {
                "minSize": 1,
                "maxSize": 9,
                "gpuLabel": "a.b/gpu",
                "gpuTypes": ["k80", "p100", "k80"],
                "options": OPTIONS,
            },
            "price": {"hourly": "0.192"},
        }
    )
    assert spec.price == Price(hourly="0.192")
    assert spec.autoscaling is not None
    assert spec.autoscaling.gpu_label == "a.b/gpu"
    assert spec.autoscaling.gpu_types == {"k80", "p100"}
    assert spec.autoscaling.options is not None
    assert spec.autoscaling.options.dump() == OPTIONS


@pytest.mark.parametrize("given", [None, {}], ids=repr)
def test_an_empty_one_is_a_consent_without_limits(given: Any) -> None:
    assert Autoscaling.model_validate(given) == Autoscaling(
        min_size=0, max_size=None, options=None, gpu_label=None, gpu_types=frozenset()
    )


def test_an_option_that_is_not_set_is_none() -> None:
    assert AutoscalingOptions().dump() == {}
    found = AutoscalingOptions.model_validate({"zeroOrMaxNodeScaling": None})
    assert found.model_fields_set == set()


@pytest.mark.parametrize("share", ["0", "1", "0.5", "0.123456", "1.0", "1.000000"])
def test_shares(share: str) -> None:
    AutoscalingOptions(scale_down_utilization_threshold=share)


@pytest.mark.parametrize("amount", ["0", "0.0001", "999999999.999999999", "007"])
def test_amounts(amount: str) -> None:
    assert float(Price(hourly=amount).hourly) >= 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("scaleDownUtilizationThreshold", bad) for bad in ("", "2", "-0", "50%", ".5", "1.1", 1)),
        *(
            ("scaleDownGpuUtilizationThreshold", bad)
            for bad in ("nan", "inf", "0.5\n", "0.1234567")
        ),
        *(("scaleDownUnneededTime", bad) for bad in ("", "5", "5m\n", "30s5m", "5d", "-1s", 300)),
        *(("maxNodeProvisionTime", bad) for bad in ("100000h", "1234567m", "s", "1.5h")),
        ("zeroOrMaxNodeScaling", "sometimes"),
    ],
)
def test_options_that_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        AutoscalingOptions.model_validate({field: value})


@pytest.mark.parametrize(
    "price", [{}, *({"hourly": bad} for bad in ("", "-1", "1e3", "$3", "1.", ".5", "1" * 10, 3))]
)
def test_prices_that_are_refused(price: Any) -> None:
    with pytest.raises(ValidationError):
        Price.model_validate(price)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("gpuLabel", bad) for bad in ("", "a b", "a/b/c", "-a", "a/")),
        *(
            ("gpuTypes", bad)
            for bad in ([""], ["a b"], ["x" * 64], [7], "k80", [*map(str, range(101))])
        ),
    ],
)
def test_gpus_that_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        Autoscaling.model_validate({field: value})
