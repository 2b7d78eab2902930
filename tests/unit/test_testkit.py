"""The fixtures for the tests of others, without a cluster."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import KwokOperatorError
from kwok_operator.schema.check import check_group
from kwok_operator.testkit.cluster import KubectlError, KwokCluster
from kwok_operator.testkit.groups import Groups, manifests
from kwok_operator.testkit.rehearsed import Rehearsed
from tests.fakes.docs import DOCS

ROOT = DOCS.parent
LOADED = """
import sys

def test_nothing(): pass

def test_loaded():
    ours = {name for name in sys.modules if name.startswith("kwok_operator")}
    assert ours == {"kwok_operator", "kwok_operator.testkit", "kwok_operator.testkit.plugin"}
    heavy = "kopf kubernetes_asyncio aiohttp pydantic yaml google.protobuf prometheus_client"
    assert not set(heavy.split()) & sys.modules.keys()
"""
WORDS = st.sampled_from(["kind", "KwokNodeGroup", "metadata", "name", "a"]) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner),
    max_leaves=5,
)


def test_a_test_that_asks_for_no_fixture_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(LOADED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fixtures"]
    env = {"PATH": "/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with_ours = ["-p", "kwok_operator.testkit.plugin"]
    for more in ([], with_ours):
        done = subprocess.run(
            [*command, *more], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        names = set(re.findall(r"^\w+", done.stdout, re.MULTILINE))
        assert ({"kwok_cluster", "kwok_groups", "rehearse"} <= names) == bool(more)
    del command[-1]
    subprocess.run([*command, *with_ours], cwd=tmp_path, env=env, check=True)


def test_pytest_finds_them_and_the_operator_needs_no_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [*project["entry-points"]["pytest11"].values()] == ["kwok_operator.testkit.plugin"]
    assert not [line for line in project["dependencies"] if "pytest" in line]


def test_what_the_docs_give_in_short_are_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = re.search(r"```python\n(kwok_groups[^`]*)```", (DOCS / "ci.md").read_text())
    assert calls is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "groups.yaml").write_text(json.dumps(manifests({"whole": 1})[0]))
    found: list[dict[str, Any]] = []

    def kwok_groups(groups: Any, **options: Any) -> None:
        found.extend(manifests(groups))

    exec(calls[1], {"kwok_groups": kwok_groups, "Path": Path})
    assert [each["metadata"]["name"] for each in found] == ["general", "large", "spot", "whole"]
    assert [each["spec"]["targetSize"] for each in found] == [3, 1, 3, 1]
    assert [problem for each in found for problem in check_group(each)] == []


def test_a_group_in_short_takes_any_pod_unless_it_says_otherwise() -> None:
    (short,) = manifests({"a": 1})
    assert short["spec"]["guardTaint"] == {"enabled": False}
    (kept,) = manifests({"a": {"guardTaint": {}}})
    assert kept["spec"]["guardTaint"] == {}


KUBECTL = """#!/bin/sh
echo "$@" >> said
[ "$1" != get ] || echo '{"items": []}'
[ ! -e fails ] || { echo "it fails" >&2; exit 1; }
"""


def test_groups_are_deleted_once_and_their_nodes_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    groups = Groups(KwokCluster(tmp_path / "kubeconfig", tmp_path, program))
    groups.clear()
    assert not (tmp_path / "said").exists()
    groups({"b": 2}, within=None)
    groups.clear()
    groups.clear()
    *_, delete, wait = (tmp_path / "said").read_text().splitlines()
    assert delete.startswith("delete ") and wait.startswith("wait nodes ")
    assert "--for=delete" in wait and "--timeout=240s" in wait
    assert len((tmp_path / "said").read_text().splitlines()) == 4
    (tmp_path / "fails").touch()
    with pytest.raises(KubectlError, match="it fails"):
        groups({"b": 2}, within=None)


@pytest.mark.parametrize(
    ("groups", "named"),
    [
        ({}, "none"),
        ("---\n---\n", "none"),
        ("- 3", "3"),
        ("a: {", "line 2"),
        ({"a": True}, "True"),
        ({"a": "3"}, "'3'"),
        ({"A b": 3}, "'A b'"),
        ({3: 3}, "3"),
        ({"kind": "Pod", "metadata": {"name": "a"}}, "'Pod'"),
        ({"kind": "KwokNodeGroup"}, "None"),
        ({"kind": "KwokNodeGroup", "metadata": {"name": ["a"]}}, r"\['a'\]"),
    ],
)
def test_what_is_no_group_is_told(groups: Any, named: str) -> None:
    with pytest.raises(KwokOperatorError, match=f"groups.*{named}"):
        manifests(groups)


@given(JSON)
def test_whatever_is_given_is_groups_or_told(groups: Any) -> None:
    try:
        found = manifests(groups)
    except KwokOperatorError:
        return
    assert all(isinstance(each["metadata"]["name"], str) for each in found)


def rehearsed(*held: bool, off: str | None = None) -> Rehearsed:
    expectations = [
        {"name": f"expectation {n}", "held": each, "reason": f"reason {n}", "value": None}
        for n, each in enumerate(held)
    ]
    passed = all(held) and not off
    verdict = {
        "verdict": "passed" if passed else "failed",
        "brokenOff": off,
        "scenario": "it",
        "expectations": expectations,
        "figures": {"cost": None, "nodes.max": 3},
    }
    return Rehearsed(verdict, Path("folder"))


def test_a_rehearsal_says_in_a_line_what_has_not_held() -> None:
    assert rehearsed(True).passed
    assert repr(rehearsed(True)) == "<it passed>"
    assert repr(rehearsed(True, False)) == "<it FAILED: expectation 1: reason 1>"
    assert not rehearsed(True, off="it died").passed
    assert repr(rehearsed(True, off="it died")) == "<it FAILED: it died>"
    assert repr(rehearsed(*[False] * 9)).endswith("; expectation 2: reason 2; 6 more>")


def test_a_figure_with_nothing_to_measure_is_no_number() -> None:
    figures = rehearsed(True).figures
    assert figures == {"nodes.max": 3}
    with pytest.raises(KeyError, match="cost: there was nothing to measure"):
        figures["cost"]
