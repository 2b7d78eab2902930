"""The CRDs of emulation, and whether those of a cluster may be used."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.api.base import is_api_group
from kwok_operator.cli.install import as_yaml
from kwok_operator.clusterapi.crds import PLURALS, PROVIDER_LABEL, emulated_crds, objection

COMPONENT = Path(__file__).parents[2] / "deploy/components/clusterapi-crds/crds.yaml"


def installed(group: str = "cluster.x-k8s.io") -> dict[str, dict[str, Any]]:
    return {crd["spec"]["names"]["plural"]: crd for crd in emulated_crds(group)}


class TestCrds:
    def test_versions_subresources_and_schemas(self) -> None:
        for plural, crd in installed().items():
            for version in crd["spec"]["versions"]:
                assert version["served"]
                assert ("scale" in version["subresources"]) == (plural != "machines")
                assert "status" in version["subresources"]
                schema = version["schema"]["openAPIV3Schema"]
                parts = (schema, schema["properties"]["spec"], schema["properties"]["status"])
                assert all(part["x-kubernetes-preserve-unknown-fields"] for part in parts)
            stored = [(v["name"], v["storage"]) for v in crd["spec"]["versions"]]
            assert stored == [("v1beta1", False), ("v1beta2", True)]

    @pytest.mark.parametrize(
        ("group", "protected"),
        [
            ("cluster.x-k8s.io", False),
            ("test.k8s.io", True),
            ("a.kubernetes.io", True),
            ("k8s.io", True),
            ("capi.example.com", False),
        ],
    )
    def test_protected_groups_say_that_nobody_has_approved_them(
        self, group: str, protected: bool
    ) -> None:
        for crd in emulated_crds(group):
            assert ("api-approved.kubernetes.io" in crd["metadata"]["annotations"]) == protected

    def test_deploy_has_them(self) -> None:
        head, _, text = COMPONENT.read_text(encoding="utf-8").partition("\n")
        assert head.startswith("# Generated")
        assert text == as_yaml(emulated_crds()), "run `make crds`"
        assert list(yaml.safe_load_all(text)) == emulated_crds()


class TestConsent:
    def test_ours_may_be_used(self) -> None:
        for group in ("cluster.x-k8s.io", "capi.example.com"):
            assert objection(installed(group), group=group) is None

    @pytest.mark.parametrize("plural", PLURALS)
    def test_each_of_them_counts(self, plural: str) -> None:
        unmarked = installed()
        unmarked[plural]["metadata"]["annotations"] = {}
        real = installed()
        real[plural]["metadata"]["labels"] = {PROVIDER_LABEL: "cluster-api"}
        converted = installed()
        converted[plural]["spec"]["conversion"] = {"strategy": "Webhook"}
        missing: dict[str, Any] = {**installed(), plural: None}
        words = {
            "lacks the annotation": unmarked,
            "a real Cluster API": real,
            "Webhook": converted,
            "--clusterapi-crds": missing,
        }
        for said, crds in words.items():
            why = objection(crds, group="cluster.x-k8s.io")
            assert why is not None and said in why and f"{plural}.cluster.x-k8s.io" in why

    def test_the_remedy_names_the_group(self) -> None:
        assert "--clusterapi-crds=a.example.com" in (objection({}, group="a.example.com") or "")

    @given(
        st.sampled_from(["metadata", "spec"]),
        st.none() | st.integers() | st.text() | st.lists(st.none(), max_size=1),
    )
    def test_odd_crds_are_no_consent(self, part: str, value: Any) -> None:
        crds = installed()
        crds["machines"][part] = value
        why = objection(crds, group="cluster.x-k8s.io")
        assert (why is None) == (part == "spec"), "without a spec there is no webhook either"


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("cluster.x-k8s.io", True),
        ("nodot", False),
        ("a..b", False),
        ("A.b", False),
        ("-a.b", False),
        ("a.b\n", False),
        ("", False),
        ("a." + "b" * 300, False),
    ],
)
def test_names_of_api_groups(text: str, good: bool) -> None:
    assert is_api_group(text) == good
