"""Reading Cluster API's objects, names of keys, and discovery flags of cluster-autoscaler."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.clusterapi.discovery import (
    Discovery,
    allowed,
    namespace_watched,
    parse_discovery,
)
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import InfrastructureRef, read_scalable
from kwok_operator.errors import ManifestError
from tests.scalables import KEYS, REFERENCE, body, scalable


def test_keys_move_with_the_group() -> None:
    keys = Keys("a.b")
    assert keys.min_size == "a.b/cluster-api-autoscaler-node-group-min-size"
    assert keys.max_size == "a.b/cluster-api-autoscaler-node-group-max-size"
    assert keys.options == "a.b/autoscaling-options-"
    assert (keys.delete_machine, keys.cluster_name) == ("a.b/delete-machine", "a.b/cluster-name")


class TestReading:
    @pytest.mark.parametrize(
        ("reference", "expected"),
        [
            (REFERENCE, InfrastructureRef("infra.example", "", "XTemplate", "large")),
            (
                {"apiVersion": "infra.example/v1", "kind": "X", "name": "y", "namespace": "z"},
                InfrastructureRef("infra.example", "v1", "X", "y"),
            ),
            (REFERENCE | {"uid": 3}, None),
            ({"apiGroup": "infra.example", "name": "large"}, None),
            ({"kind": "XTemplate", "name": "large"}, None),
            ([], None),
        ],
    )
    def test_the_template_is_named_as_in_either_version(
        self, reference: Any, expected: InfrastructureRef | None
    ) -> None:
        found = scalable(machine={"infrastructureRef": reference}).infrastructure
        assert found == expected
        assert found is None or found.resource == f"{found.kind.lower()}s"

    def test_the_cluster_is_that_of_spec_and_else_of_the_label(self) -> None:
        labelled = body(labels={"cluster.x-k8s.io/cluster-name": "west"})
        assert read_scalable(labelled, KEYS).cluster_name == "east"
        for absent in ({"clusterName": None}, {}):
            labelled["spec"] = absent
            assert read_scalable(labelled, KEYS).cluster_name == "west"
        assert read_scalable(labelled, Keys("a.b")).cluster_name == ""

    @pytest.mark.parametrize(
        ("owner", "expected"),
        [
            ({"kind": "MachineDeployment", "name": "web"}, "web"),
            ({"kind": "MachineDeployment", "name": ""}, ""),
            ({"kind": "Other", "name": "web"}, ""),
        ],
    )
    def test_only_a_deployment_with_a_name_owns(self, owner: Any, expected: str) -> None:
        owners = [{"kind": "MachineDeployment", "name": ""}, owner]
        assert scalable(kind="MachineSet", ownerReferences=owners).deployment == expected

    @pytest.mark.parametrize(
        ("replicas", "expected"), [(3, 3), (0, 0), (None, None), ("3", None), (True, None)]
    )
    def test_replicas_are_a_number_or_none(self, replicas: Any, expected: int | None) -> None:
        assert scalable(replicas=replicas).replicas == expected

    @pytest.mark.parametrize(
        "change", [{"kind": "Machine"}, {"kind": []}, {"metadata": {}}, {"metadata": {"name": 3}}]
    )
    def test_other_objects_than_scalables_are_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(ManifestError):
            read_scalable(body() | change, KEYS)


class TestDiscovery:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("clusterapi:", Discovery()),
            ("clusterapi:,,", Discovery()),
            ("clusterapi:namespace=a,clusterName=b", Discovery("a", "b")),
            ("clusterapi:namespace=a,namespace=b", Discovery("b")),
            ("clusterapi:namespace=", Discovery()),
            ("clusterapi:a.io/x=,y=Z_1", Discovery(labels={"a.io/x": "", "y": "Z_1"})),
            ("clusterapi:ClusterName=b", Discovery(labels={"ClusterName": "b"})),
        ],
    )
    def test_flags_are_parsed(self, text: str, expected: Discovery) -> None:
        assert parse_discovery(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            *("", "clusterapi", "mig:namespace=a", "clusterapi:a:b", "clusterapi:namespace"),
            *("clusterapi:a=b=c", "clusterapi:=b", "clusterapi:a=-", "clusterapi:A.io/x=y"),
            *("clusterapi:.io/x=y", "clusterapi:a=b,a=c", "clusterapi:a=" + "b" * 64),
        ],
    )
    def test_flags_that_ca_refuses_or_that_match_nothing_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"is not|is no|has|asks"):
            parse_discovery(text)

    @given(st.text(max_size=30))
    def test_hostile_ones_too(self, text: str) -> None:
        for flag in (text, f"clusterapi:{text}"):
            try:
                parse_discovery(flag)
            except ValueError as error:
                assert str(error)

    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            ([], True),
            (["clusterapi:"], True),
            (["clusterapi:namespace=prod,clusterName=east,tier=web"], True),
            (["clusterapi:clusterName=west", "clusterapi:tier=web"], True),
            (["clusterapi:namespace=prod,clusterName=west"], False),
            (["clusterapi:tier=web,zone=a"], False),
            (["clusterapi:zone="], False),
            (["clusterapi:empty="], True),
        ],
    )
    def test_flags_are_alternatives_and_parts_of_one_are_not(
        self, flags: list[str], expected: bool
    ) -> None:
        labels = {"tier": "web", "empty": ""}
        parsed = map(parse_discovery, flags)
        found = allowed(parsed, namespace="prod", cluster_name="east", labels=labels)
        assert found is expected

    def test_the_first_namespace_is_the_only_one_that_is_watched(self) -> None:
        flags = [Discovery(cluster_name="c"), Discovery("a"), Discovery("b")]
        assert (namespace_watched(flags), namespace_watched(flags[:1])) == ("a", "")
