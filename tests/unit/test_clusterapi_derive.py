"""Which groups come of scalables, and when cluster-autoscaler (CA) sees them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.clusterapi.derive import Offer
from kwok_operator.clusterapi.discovery import parse_discovery
from kwok_operator.constants import CA_MIN_SIZE_ANNOTATION as MIN_TOLD
from kwok_operator.schema.check import check_group
from tests.scalables import (
    BOUNDS,
    CAPACITY,
    MACHINE,
    OPTION,
    REFERENCE,
    SIZE,
    body,
    fleet,
    group,
    reasons,
)

PAUSED = {"cluster.x-k8s.io/paused": ""}
WRONG = {f"{CAPACITY}maxPods": "x"}
NOISE = st.text(max_size=12) | st.sampled_from(
    ["-1", "9" * 30, "1e99", "a=b:c", "a=b,=", "0.1ms", "9" * 5_000, "x.io/y", "-0"]
)
OPTIONS = [
    f"{OPTION}scaledown{which}"
    for which in ("utilizationthreshold", "unneededtime", "gpuutilizationthreshold")
]
KEYS_OF_ALL = [
    *BOUNDS,
    *OPTIONS,
    *(
        CAPACITY + key
        for key in ("cpu", "memory", "ephemeral-disk", "gpu-type", "gpu-count", "maxPods", "labels")
    ),
    *(CAPACITY + key for key in ("taints", "dra-driver", "csi-driver")),
    "cluster.x-k8s.io/paused",
]


def bounds(least: str | None, most: str | None) -> dict[str, str]:
    found = {f"{SIZE}min-size": least, f"{SIZE}max-size": most}
    return MACHINE | {key: text for key, text in found.items() if text is not None}


class TestBounds:
    @pytest.mark.parametrize(
        ("least", "most", "expected"),
        [
            ("1", "9", (1, 9)),
            (None, "9", (0, 9)),
            ("+2", "002", (2, 2)),
            ("0", "9223372036854775807", (0, 1_000_000)),
            ("0", "0" * 30 + "7", (0, 7)),
        ],
    )
    def test_they_are_read_as_ca_does(self, least: Any, most: Any, expected: Any) -> None:
        found = group(annotations=bounds(least, most))
        assert (found.min_size, found.max_size) == expected
        assert found.offer is Offer.ALWAYS

    @pytest.mark.parametrize(
        ("least", "most", "key"),
        [
            ("one", "9", "min"),
            ("", "9", "min"),
            ("-1", "9", "min"),
            ("0", "1.5", "max"),
            ("0", "-1", "max"),
            ("0", "1_0", "max"),
            ("0", "9" * 5_000, "max"),
            ("0", "9223372036854775808", "max"),
            ("3", "2", "max"),
            ("1", None, "max"),
        ],
    )
    def test_bad_ones_hide_all_groups(self, least: Any, most: Any, key: str) -> None:
        found = fleet(body("good"), body("bad", annotations=bounds(least, most) | PAUSED))
        assert found.hidden == ("MachineDeployment/prod/bad",)
        assert [each.offer for each in found.groups] == [Offer.NEVER] * 2
        (finding,) = [each for each in found.findings if not each.note]
        assert finding.reason == "InvalidBounds"
        assert finding.path == ("metadata", "annotations", f"{SIZE}{key}-size")

    def test_both_are_told(self) -> None:
        found = fleet(body(annotations=bounds("one", "ten")))
        assert [each.path[-1] for each in found.findings] == [f"{SIZE}min-size", f"{SIZE}max-size"]

    def test_bad_bounds_of_objects_that_ca_ignores_hide_nothing(self) -> None:
        owner = [{"kind": "MachineDeployment", "name": "web"}]
        bad = bounds("x", "9")
        owned = body("web-1", kind="MachineSet", annotations=bad, ownerReferences=owner)
        other = body("other", annotations=bad, labels={"tier": "x"})
        flag = parse_discovery("clusterapi:tier=")
        wanted = body(labels={"tier": ""}, handed_on={"tier": ""})
        found = fleet(wanted, owned | {"metadata": owned["metadata"]}, other, discoveries=[flag])
        assert [each.name for each in found.groups] == ["prod.web"]
        assert (found.hidden, found.groups[0].offer) == ((), Offer.ALWAYS)
        assert [each.reason for each in found.findings] == ["Owned"]

    def test_a_groups_bounds_reach_to_its_target(self) -> None:
        found = group(annotations=bounds("2", "5"))
        manifests = {n: found.manifest(target=n) for n in (0, 3, 8)}
        sizes = {n: each["spec"]["autoscaling"] for n, each in manifests.items()}
        gpus = {"gpuLabel": "cluster-api/accelerator"}
        assert sizes == {
            0: gpus | {"minSize": 0, "maxSize": 5},
            3: gpus | {"minSize": 2, "maxSize": 5},
            8: gpus | {"minSize": 2, "maxSize": 8},
        }
        told = {n: each["metadata"]["annotations"].get(MIN_TOLD) for n, each in manifests.items()}
        assert told == {0: "2", 3: None, 8: None}, "CA has the minimum itself"
        assert "autoscaling" not in found.manifest(target=3, offered=False)["spec"]


class TestOffers:
    @pytest.mark.parametrize(
        ("annotations", "offer", "told", "noted"),
        [
            (BOUNDS | MACHINE, Offer.ALWAYS, [], []),
            (BOUNDS, Offer.ABOVE_ZERO, ["NoCapacity"], []),
            (BOUNDS | MACHINE | WRONG, Offer.ABOVE_ZERO, ["InvalidCapacity"], []),
            ({}, Offer.NEVER, [], ["NoCapacity"]),
            (MACHINE | WRONG, Offer.NEVER, [], ["InvalidCapacity", "NoMaximum"]),
            (MACHINE | bounds("0", "0"), Offer.NEVER, [], ["NoMaximum"]),
            (BOUNDS | MACHINE | PAUSED, Offer.NEVER, [], ["Paused"]),
        ],
    )
    def test_ca_sees_a_group(
        self, annotations: Any, offer: Offer, told: list[str], noted: list[str]
    ) -> None:
        found = fleet(body(annotations=annotations))
        assert found.groups[0].offer is offer
        assert (reasons(found), reasons(found, notes=True)) == (told, noted)

    @pytest.mark.parametrize(
        ("kind", "handed_on", "flags", "offer"),
        [
            ("MachineDeployment", {}, ["tier=web"], Offer.AT_ZERO),
            ("MachineDeployment", {"tier": "x"}, ["tier=web"], Offer.AT_ZERO),
            ("MachineDeployment", {"tier": "web"}, ["tier=web"], Offer.ALWAYS),
            ("MachineDeployment", {}, ["tier=web", "clusterName=east"], Offer.ALWAYS),
            (
                "MachineDeployment",
                {},
                ["cluster.x-k8s.io/deployment-name=web,cluster.x-k8s.io/cluster-name=east"],
                Offer.ALWAYS,
            ),
            ("MachineSet", {}, ["tier=web"], Offer.ALWAYS),
            ("MachinePool", {}, ["tier=web"], Offer.ALWAYS),
        ],
    )
    def test_labels_that_are_not_handed_on_lose_it_its_nodes(
        self, kind: str, handed_on: Any, flags: list[str], offer: Offer
    ) -> None:
        labels = {
            "tier": "web",
            "cluster.x-k8s.io/deployment-name": "web",
            "cluster.x-k8s.io/cluster-name": "east",
        }
        found = fleet(
            body(kind=kind, labels=labels, handed_on=handed_on),
            discoveries=[parse_discovery(f"clusterapi:{flag}") for flag in flags],
        )
        assert found.groups[0].offer is offer
        assert ("LabelsNotHandedOn" in reasons(found)) == (offer is Offer.AT_ZERO)

    def test_only_the_first_flags_namespace_is_looked_at(self) -> None:
        flags = [parse_discovery(f"clusterapi:namespace={name}") for name in ("dev", "prod")]
        assert fleet(body(), discoveries=flags).groups == ()
        assert len(fleet(body(), discoveries=flags[::-1]).groups) == 1

    def test_the_templates_status_is_enough_from_zero(self) -> None:
        template = {"status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}
        found = group(template, annotations=BOUNDS, machine={"infrastructureRef": REFERENCE})
        assert found.offer is Offer.ALWAYS

    @pytest.mark.parametrize(
        ("annotations", "size"),
        [({}, 1), (BOUNDS, 0), (bounds("3", "9"), 3), (bounds("3", "2"), 0)],
    )
    def test_no_replicas_mean_what_the_webhook_sets(self, annotations: Any, size: int) -> None:
        found = fleet(body(annotations=annotations, replicas=None))
        assert (found.groups[0].size, found.groups[0].default_size) == (None, size)
        offered = found.groups[0].max_size > 0
        assert ("NoReplicas" in reasons(found, notes=True)) is offered


class TestGroups:
    def test_they_carry_the_objects_labels_and_marks(self) -> None:
        labels = {"tier": "web", "kwok-operator.io/x": "y", "Bad!": "x", "odd": "a/b"}
        annotations = BOUNDS | MACHINE
        manifest = group(labels=labels, annotations=annotations).manifest(target=1)
        assert manifest["metadata"] == {
            "name": "prod.web",
            "labels": {"tier": "web", "kwok-operator.io/derived": "true"},
            "annotations": {
                "kwok-operator.io/clusterapi": "MachineDeployment/prod/web",
                "kwok-operator.io/clusterapi-namespace": "prod",
                "kwok-operator.io/clusterapi-cluster": "east",
            },
        }
        assert manifest["spec"]["guardTaint"] == {"enabled": False}
        assert "targetSize" not in manifest["spec"]

    def test_of_two_with_one_name_the_deployment_wins(self) -> None:
        found = fleet(body(kind="MachineSet"), body(kind="MachinePool"), body())
        assert [each.scalable.id for each in found.groups] == ["MachineDeployment/prod/web"]
        assert reasons(found) == ["NameCollision"] * 4, "each is told of both"

    def test_an_invalid_group_is_reported_and_left_out(self) -> None:
        gpus = {f"{CAPACITY}gpu-type": "a.io/gpu", f"{CAPACITY}gpu-count": "100001"}
        found = fleet(body("good"), body(annotations=BOUNDS | MACHINE | gpus))
        assert [each.name for each in found.groups] == ["prod.good"]
        assert reasons(found) == ["InvalidGroup"]

    @pytest.mark.parametrize(("replicas", "size"), [(-3, 0), (10**12, 1_000_000)])
    def test_replicas_out_of_range_are_reported(self, replicas: int, size: int) -> None:
        found = fleet(body(replicas=replicas))
        assert (found.groups[0].size, reasons(found)) == (size, ["InvalidReplicas"])

    @pytest.mark.parametrize(
        ("key", "text", "expected"),
        [
            ("scaledownutilizationthreshold", "0.70", {"scaleDownUtilizationThreshold": "0.7"}),
            ("scaledownutilizationthreshold", "1E-1", {"scaleDownUtilizationThreshold": "0.1"}),
            ("scaledownutilizationthreshold", "-0", {"scaleDownUtilizationThreshold": "0"}),
            ("scaledowngpuutilizationthreshold", "1", {"scaleDownGpuUtilizationThreshold": "1"}),
            ("scaledownunneededtime", "1H2M", {"scaleDownUnneededTime": "3720s"}),
            ("scaledownunneededtime", "0", {"scaleDownUnneededTime": "0s"}),
            ("scaledownunreadytime", ".5m", {"scaleDownUnreadyTime": "30s"}),
            ("maxnodeprovisiontime", "1s1ms", {"maxNodeProvisionTime": "2s"}),
            ("maxnodeprovisiontime", "5\u03bcs", {"maxNodeProvisionTime": "1s"}),
        ],
    )
    def test_options_are_written_as_a_group_has_them(
        self, key: str, text: str, expected: Any
    ) -> None:
        found = fleet(body(annotations=BOUNDS | MACHINE | {OPTION + key: text}))
        assert (dict(found.groups[0].options), reasons(found)) == (expected, [])

    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("scaledownutilizationthreshold", "1.01"),
            ("scaledownutilizationthreshold", "-0.1"),
            ("scaledownutilizationthreshold", "nan"),
            ("scaledownutilizationthreshold", "0_5"),
            ("scaledownutilizationthreshold", " 0.5"),
            ("scaledownunneededtime", "10"),
            ("scaledownunneededtime", "5m "),
            ("scaledownunneededtime", "-5m"),
            ("scaledownunneededtime", "9" * 30 + "h"),
            ("maxnodestartuptime", "5"),
        ],
    )
    def test_invalid_options_are_reported(self, key: str, text: str) -> None:
        found = fleet(body(annotations=BOUNDS | MACHINE | {OPTION + key: text}))
        assert (dict(found.groups[0].options), reasons(found)) == ({}, ["InvalidOption"])

    def test_one_that_production_has_and_the_shim_cant_say_is_a_note(self) -> None:
        found = fleet(body(annotations=BOUNDS | MACHINE | {f"{OPTION}maxnodestartuptime": "5m"}))
        assert (reasons(found), reasons(found, notes=True)) == ([], ["OptionNotSent"])

    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            (f"{CAPACITY}memroy", f"{CAPACITY}memory"),
            (f"{CAPACITY}maxpods", f"{CAPACITY}maxPods"),
            ("capacity.cluster-autoscaler.k8s.io/cpu", f"{CAPACITY}cpu"),
            (f"{SIZE}min", f"{SIZE}min-size"),
            (f"{SIZE}maxsize", f"{SIZE}max-size"),
            ("cluster.k8s.io/cluster-api-autoscaler-node-group-min-size", f"{SIZE}min-size"),
            ("cluster-api-autoscaler-node-group-min-size", f"{SIZE}min-size"),
            ("cluster.x-k8s.io/cluster-autoscaler-node-group-min-size", f"{SIZE}min-size"),
            (
                "cluster.x-k8s.io/autoscaler-options-scaledownunneededtime",
                f"{OPTION}scaledownunneededtime",
            ),
            (f"{OPTION}scaledownunneededtimes", f"{OPTION}scaledownunneededtime"),
            (f"{OPTION}scaleDownUnneededTime", f"{OPTION}scaledownunneededtime"),
            (
                "cluster.x-k8s.io/autoscaling-option-maxnodeprovisiontime",
                f"{OPTION}maxnodeprovisiontime",
            ),
        ],
    )
    def test_misspelt_keys_are_reported_with_the_right_one(self, key: str, meant: str) -> None:
        (finding,) = fleet(body(annotations=BOUNDS | MACHINE | {key: "5m"})).findings
        assert (finding.reason, finding.path) == ("UnknownKey", ("metadata", "annotations", key))
        assert finding.message.endswith(f"did you mean {meant}?")


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(KEYS_OF_ALL), NOISE),
    st.dictionaries(st.text(max_size=6) | st.sampled_from(["a.io/b", "A.io/b"]), NOISE, max_size=2),
    st.dictionaries(st.sampled_from(["cpu", "pods", "x.io/y", "odd"]), NOISE, max_size=3),
    st.integers(-1, 2_000_000),
)
def test_groups_of_any_objects_can_be_applied(
    annotations: dict[str, str], labels: dict[str, str], status: dict[str, str], replicas: int
) -> None:
    found = fleet(
        body(
            annotations=BOUNDS | annotations,
            labels=labels,
            handed_on={f"node-role.kubernetes.io/{key}": text for key, text in labels.items()},
            machine={"infrastructureRef": REFERENCE, "taints": [labels, status]},
            replicas=replicas,
        ),
        template={"status": {"capacity": status, "nodeInfo": labels}},
    )
    assert found.groups or "InvalidGroup" in reasons(found)
    for each in found.groups:
        for target in (0, each.size or 0):
            problems = check_group(each.manifest(target=target))
            assert not problems, [problem.message for problem in problems]
    assert all(len(each.message) <= 2_000 and each.reason.isalpha() for each in found.findings)


@pytest.mark.parametrize("text", ["9" * 2_000_000, "1" * 1_500_000 + "h", "0." + "0" * 10**6])
def test_absurd_lengths_cost_nothing(text: str) -> None:
    keys = [*OPTIONS, *BOUNDS, *(CAPACITY + key for key in ("cpu", "gpu-count", "labels"))]
    for key in keys:
        assert fleet(body(annotations=BOUNDS | MACHINE | {key: text})).findings
