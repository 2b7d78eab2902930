"""Groups with a spec.cloud, and KwokCapacityPools: such as the API server takes, and such as it
refuses, each with a part of why. To be used as `tests.manifests` is.
"""

from typing import Any

from tests.manifests import Manifest, group


def cloud(**fields: Any) -> Manifest:
    return group({"cloud": fields})


def boot(delay: Any) -> Manifest:
    return cloud(provisioningDelay=delay)


def failing(**fields: Any) -> Manifest:
    """Creations that fail in one way."""
    return cloud(failures={"creation": [fields]})


def pool(spec: Any = None, *, name: str = "zone-b") -> Manifest:
    """A whole KwokCapacityPool; without a spec it has none."""
    return group(spec, name=name) | {"kind": "KwokCapacityPool"}


TIMES = "must be a time such as"
KINDS = "must have exactly one of fixed, uniform, normal, lognormal, exponential and samples"
SHARES = "must be a share from 0 to 1"
WHOM = "must have probability, serials or both"

GOOD: dict[str, Manifest] = {
    "a perfect cloud": cloud(),
    "no cloud": group({"cloud": None}),
    "a slow boot": cloud(
        seed="run-1",
        provisioningDelay={"lognormal": {"p50": "40s", "p99": "3m"}},
        readinessDelay={"uniform": {"min": "20s", "max": "20s"}},
        startupTaints=[
            {
                "key": "a",
                "effect": effect,
                "removedAfter": {"normal": {"mean": "9s", "stddev": "0s"}},
            }
            for effect in ("NoSchedule", "NoExecute")
        ],
        lateResources=[{"name": "nvidia.com/gpu", "after": {"samples": ["31s"] * 100}}],
    ),
    "all failures": cloud(
        failures={
            "creation": [
                {"probability": "0.1", "serials": "3,10-19", "class": "Other", "times": 1000},
                {"serials": "9-1", "code": "Sold_out.1", "message": "", "after": {"fixed": "0s"}},
            ],
            "neverRegisters": {"probability": "0"},
            "neverReady": {"probability": "1"},
            "slowDeletion": {"serials": "0", "delay": {"exponential": {"mean": "10m"}}},
        },
        retryAfter="Never",
    ),
    "devices that come late": cloud(
        devices={
            "after": {"fixed": "90s"},
            "neverPublished": {"serials": "3"},
            "failures": {
                "probability": "0.01",
                "after": {"exponential": {"mean": "6h"}},
                "taint": {"key": "example.com/sick", "effect": "NoSchedule"},
            },
        }
    ),
    "no devices": cloud(devices={"failures": {"probability": "1"}}),
    "no failures": cloud(failures={"creation": []}, retryAfter="5s"),
    "a small cloud": cloud(stock=0, capacityPools=["zone-b", "quota.gpu"]),
    "a spot market": cloud(
        interruptions={"hourlyRate": "0.05", "maxLifetime": "24h", "notice": "0s", "atATime": 0}
    ),
    "nodes with a lifetime": cloud(interruptions={"lifetime": {"fixed": "999h"}}),
    "no interruptions": cloud(interruptions={}),
    "an unsteady cloud": cloud(outage=True, flapping={"period": "10m", "nodes": "0.5"}),
    "pool without spec": pool(),
    "empty pool": pool({}),
    "pool": pool(
        {
            "instances": 1_000_000,
            "resources": {"cpu": 512, "memory": "2Ti", "nvidia.com/gpu": "16", "pods": "1e3"},
            "error": {"class": "QuotaExceeded", "code": "VcpuLimitExceeded", "message": "No."},
            "outage": True,
        }
    ),
    "pool with nothing in it": pool({"instances": 0, "resources": {"cpu": 0}}),
    "pool without limits": pool({"instances": None, "resources": None, "error": None}),
    "pool with a long name": pool({}, name="z" * 253),
}

BAD: dict[str, tuple[Manifest, str]] = {
    "cloud that is a list": (group({"cloud": []}), "spec.cloud"),
    "unknown part of a cloud": (cloud(provisionDelay={"fixed": "1s"}), "provisionDelay"),
    "unknown kind of delay": (boot({"fixed": "1s", "gamma": "1s"}), "gamma"),
    "delay without a kind": (boot({}), KINDS),
    "two kinds of delay": (boot({"fixed": "5s", "samples": ["1s"]}), KINDS),
    "delay that is text": (boot("5s"), "spec.cloud.provisioningDelay"),
    "delay without a unit": (boot({"fixed": "90"}), TIMES),
    "delay in milliseconds": (boot({"fixed": "500ms"}), TIMES),
    "delay with a point": (boot({"fixed": "1.5h"}), TIMES),
    "negative delay": (boot({"fixed": "-5s"}), TIMES),
    "endless delay": (boot({"fixed": "Never"}), TIMES),
    "delay with a line feed": (boot({"fixed": "5s\n"}), TIMES),
    "long delay": (boot({"fixed": "9" * 7 + "s" * 10}), "provisioningDelay.fixed"),
    "delay of many digits": (boot({"fixed": "9" * 12 + "s"}), TIMES),
    "empty delay": (boot({"fixed": ""}), "provisioningDelay.fixed"),
    "delay that is a number": (boot({"fixed": 300}), "provisioningDelay.fixed"),
    "uniform upside down": (
        boot({"uniform": {"min": "2m", "max": "119s"}}),
        "uniform.min must not be longer than uniform.max",
    ),
    "uniform without an end": (boot({"uniform": {"min": "2m"}}), "uniform.max"),
    "time of a uniform": (boot({"uniform": {"min": "x1", "max": "1s"}}), TIMES),
    "normal without a width": (boot({"normal": {"mean": "2m"}}), "normal.stddev"),
    "lognormal upside down": (
        boot({"lognormal": {"p50": "3m", "p99": "2m"}}),
        "lognormal.p50 must not be longer than lognormal.p99",
    ),
    "lognormal of nothing": (
        boot({"lognormal": {"p50": "0s", "p99": "2m"}}),
        "lognormal.p50 must be longer than 0s",
    ),
    "no samples": (boot({"samples": []}), "provisioningDelay.samples"),
    "too many samples": (boot({"samples": ["1s"] * 101}), "provisioningDelay.samples"),
    "bad sample": (boot({"samples": ["1s", "1 s"]}), TIMES),
    "failure of nobody": (failing(**{"class": "Other"}), WHOM),
    "never ready, and nobody": (cloud(failures={"neverReady": {}}), WHOM),
    "probability above one": (failing(probability="1.01"), SHARES),
    "probability in percent": (failing(probability="5%"), SHARES),
    "probability that is not a number": (failing(probability="NaN"), SHARES),
    "probability without end": (failing(probability="inf"), SHARES),
    "negative probability": (failing(probability="-0.1"), SHARES),
    "probability that is a number": (failing(probability=0.5), "creation[0].probability"),
    "serials": (failing(serials="1;2"), "must be serials or ranges of them"),
    "serial of many digits": (failing(serials="1234567890"), "must be serials or ranges of them"),
    "long serials": (failing(serials="1," * 128 + "1"), "creation[0].serials"),
    "class of a failure": (failing(probability="1", **{"class": "Quota"}), "creation[0].class"),
    "empty code": (failing(probability="1", code=""), "creation[0].code"),
    "code of two words": (failing(probability="1", code="sold out"), "must begin and end with a"),
    "long message": (failing(probability="1", message="x" * 129), "creation[0].message"),
    "times without end": (failing(probability="1", times=10**30), "creation[0].times"),
    "too many failures": (
        cloud(failures={"creation": [{"probability": "1"}] * 9}),
        "spec.cloud.failures.creation",
    ),
    "deletion without a delay": (
        cloud(failures={"slowDeletion": {"probability": "1"}}),
        "slowDeletion.delay",
    ),
    "retry in lower case": (cloud(retryAfter="never"), "or Never"),
    "negative stock": (cloud(stock=-1), "spec.cloud.stock"),
    "stock without end": (cloud(stock=10**30), "spec.cloud.stock"),
    "part of a stock": (cloud(stock=1.5), "spec.cloud.stock"),
    "name of a pool": (cloud(capacityPools=["Zone_B"]), "must be the name of an object"),
    "too many pools": (cloud(capacityPools=["z"] * 9), "spec.cloud.capacityPools"),
    "empty seed": (cloud(seed=""), "spec.cloud.seed"),
    "long seed": (cloud(seed="x" * 65), "spec.cloud.seed"),
    "seed that is a number": (cloud(seed=5), "spec.cloud.seed"),
    "startup taint that stays": (
        cloud(startupTaints=[{"key": "a", "effect": "NoSchedule"}]),
        "startupTaints[0].removedAfter",
    ),
    "late resource without a domain": (
        cloud(lateResources=[{"name": "gpu", "after": {"fixed": "1s"}}]),
        "must be the name of a resource with its domain",
    ),
    "late twice": (
        cloud(lateResources=[{"name": "a.b/c", "after": {"fixed": f"{n}s"}} for n in (1, 2)]),
        "spec.cloud.lateResources[1]",
    ),
    "two kinds of interruption": (
        cloud(interruptions={"lifetime": {"fixed": "1h"}, "hourlyRate": "0.1"}),
        "interruptions must have lifetime or hourlyRate, not both",
    ),
    "rate above one": (cloud(interruptions={"hourlyRate": "2"}), SHARES),
    "flapping without a period": (cloud(flapping={"nodes": "1"}), "flapping.period"),
    "outage that is text": (cloud(outage="yes"), "spec.cloud.outage"),
    "pool with an upper-case name": (pool({}, name="Zone"), "metadata.name"),
    "unknown part of a pool": (pool({"limit": 5}), "limit"),
    "pool that is a list": (pool([]), "spec"),
    "negative pool": (pool({"instances": -1}), "spec.instances"),
    "pool without end": (pool({"instances": 10**30}), "spec.instances"),
    "part of an instance": (pool({"instances": 1.5}), "spec.instances"),
    "instances that are text": (pool({"instances": "5"}), "spec.instances"),
    "resource of a pool": (pool({"resources": {"cpu": "many"}}), "must be a quantity and not"),
    "pool that is not a number": (pool({"resources": {"cpu": "NaN"}}), "must be a quantity and"),
    "negative resource": (pool({"resources": {"cpu": "-1"}}), "must be a quantity and not"),
    "resource with a point": (pool({"resources": {"cpu": 0.5}}), "spec.resources"),
    "long quantity": (pool({"resources": {"cpu": "1" * 33}}), "spec.resources"),
    "name of a resource": (pool({"resources": {"no such thing": 1}}), "resources: a name must be"),
    "resource without a name": (pool({"resources": {"": 1}}), "resources: a name must be that of"),
    "too many resources": (pool({"resources": {f"r{i}": 1 for i in range(33)}}), "spec.resources"),
    "class of a pool's error": (pool({"error": {"class": "Sold"}}), "spec.error.class"),
    "code of a pool's error": (pool({"error": {"code": "a b"}}), "must begin and end with a"),
    "outage of a pool": (pool({"outage": 1}), "spec.outage"),
}
