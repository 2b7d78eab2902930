"""`kwok-operator explain-pod --file`: what pods will do, told from files alone."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cli.main import main
from kwok_operator.offline.files import Files
from kwok_operator.offline.podprofiles import MOST_PODS, PodForecast, forecast_pods
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.explain import clock, explain
from kwok_operator.podprofiles.life import FAILED_TRIES, INDEX_LABEL, JOB_LABEL, ORDINAL_LABEL
from kwok_operator.podprofiles.selectors import Pod
from tests.podmanifests import profile

SPEC: dict[str, Any] = {
    "start": {"delay": {"uniform": {"min": "1s", "max": "9s"}}},
    "run": {"duration": {"lognormal": {"p50": "30s", "p99": "1m"}}},
}
OFTEN = {"failures": [{"type": "Error", "probability": "0.5", "after": {"fixed": "3s"}}]}


def workload(kind: str, *, spec: dict[str, Any], **pod: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"restartPolicy": "Never", **pod}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "w", "namespace": "sim"},
        "spec": {"template": template, **spec},
    }


def indexed(count: int, **spec: Any) -> dict[str, Any]:
    return workload("Job", spec={"completionMode": "Indexed", "completions": count, **spec})


def told(*manifests: Any, only: str | None = None) -> PodForecast:
    return forecast_pods(Files.read([("f.yaml", yaml.safe_dump_all(manifests))]), only=only)


def end_of(spec: dict[str, Any], pod: Pod) -> str:
    read = Profile.of("batch", KwokPodProfileSpec.model_validate(spec), namespaces=None)
    return clock(explain(read, pod).steps[-1].after)


def test_a_statefulset_counts_from_its_first_ordinal() -> None:
    found = told(profile(SPEC), workload("StatefulSet", spec={"ordinals": {"start": 5}}))
    assert [row.pod for row in found.rows] == ["sim/w-5"]
    labels = {"app": "a", ORDINAL_LABEL: "5"}
    assert found.rows[0].at == end_of(SPEC, Pod("sim", "w-5", labels, {}, restart_policy="Never"))


def test_a_jobs_tries_follow_one_another() -> None:
    spec = SPEC | OFTEN
    found = told(profile(spec), indexed(40, backoffLimitPerIndex=2))
    tries: dict[str, list[tuple[str, str]]] = {}
    for row in found.rows:
        tries.setdefault(row.pod, []).append((row.attempt, row.then.partition(",")[0]))
    assert len(tries) == 40
    assert {len(each) for each in tries.values()} == {1, 2, 3}
    for each in tries.values():
        assert [number for number, _ in each] == [str(n) for n in range(1, len(each) + 1)]
        assert [end for _, end in each[:-1]] == ["Failed"] * (len(each) - 1)
        assert each[-1][1] == "Succeeded" or len(each) == 3
    row = next(row for row in found.rows if row.attempt == "2")
    index = row.pod.rpartition("-")[2]
    labels = {INDEX_LABEL: index, JOB_LABEL: "w"}
    pod = Pod("sim", "w-any-abcde", labels, {FAILED_TRIES: "1"}, restart_policy="Never")
    assert row.at == end_of(spec, pod), "the name has a random end, which decides nothing"


def test_chance_that_is_not_known_is_left_out() -> None:
    sure = [{"type": "Error", "indexes": "2", "exitCode": 9}, *OFTEN["failures"]]
    found = told(profile({**SPEC, "failures": sure}), indexed(20))
    ends = [row.then for row in found.rows]
    assert ends == ["Succeeded"] * 2 + ["Failed, Error, exit code 9"] + ["Succeeded"] * 17
    (note,) = found.notes
    assert note.startswith("Job/w: ")
    assert "backoffLimitPerIndex" in note


def test_a_crash_loop_is_shown_by_its_first_end() -> None:
    looping = {"failures": [{"type": "CrashLoopBackOff", "indexes": "0", "after": {"fixed": "3s"}}]}
    found = told(
        profile(looping), workload("StatefulSet", spec={"replicas": 2}, restartPolicy="Always")
    )
    assert [(row.then, row.at) for row in found.rows] == [
        ("fails again and again, Error, exit code 1", "0:00:03.000"),
        ("runs", "-"),
    ]


@pytest.mark.parametrize(
    ("labels", "rows"),
    [({"team": "batch"}, 1), ({"team": "web"}, 0), ({}, 0), (None, 0)],
)
def test_namespaces_have_their_labels(labels: dict[str, str] | None, rows: int) -> None:
    namespace: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace"}
    namespace |= {"metadata": {"name": "sim", "labels": labels}} if labels is not None else {}
    spec = {"namespaceSelector": {"matchLabels": {"team": "batch"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "sim"}}
    found = told(profile(spec), namespace, pod)
    assert len(found.rows) == rows
    assert any("Namespace sim is not among" in note for note in found.notes) == (labels is None)
    assert any("no KwokPodProfile is for" in note for note in found.notes) == (not rows)


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "CronJob", "Job"])
def test_random_names_are_not_guessed(kind: str) -> None:
    found = told(profile(SPEC), workload(kind, spec={"replicas": 3, "completions": 3}))
    assert found.rows == []
    assert found.notes[0].startswith(f"{kind}/w: its pods' names have a random part")


def test_many_pods_are_shown_in_part_and_each_by_name() -> None:
    manifests = profile(SPEC), indexed(10**12)
    found = told(*manifests)
    assert len(found.rows) == MOST_PODS
    assert "the first 1,000 of its" in found.notes[0]
    assert len(told(*manifests, only="sim/w-4321").rows) == 1


def test_what_is_wrong_is_found_where_it_stands() -> None:
    odd = profile({"delay": 1}, name="odd")
    found = told(profile(SPEC), odd, workload("StatefulSet", spec={"replicas": "two"}))
    assert [finding.message.partition(":")[0] for finding in found.findings] == [
        "spec.delay",
        "spec.replicas",
    ]
    assert all(finding.line for finding in found.findings)


class TestTheCommand:
    @pytest.fixture
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.chdir(tmp_path)
        job = indexed(4, backoffLimitPerIndex=1)
        Path("a.yaml").write_text(yaml.safe_dump_all([profile(SPEC), job]))
        return "--file=a.yaml"

    def test_all_are_a_table(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain-pod", file]) == 0
        captured = capsys.readouterr()
        heading, *rows = captured.out.splitlines()
        assert heading.split() == "POD ATTEMPT RUNNING READY THEN AT".split()
        assert len(rows) == 4
        assert captured.err == "4 pods: 4 Succeeded\n"
        Path("a.yaml").write_text(yaml.safe_dump_all([profile(SPEC), indexed(1000)]))
        assert main(["explain-pod", file]) == 0
        assert capsys.readouterr().err == "1,000 pods: 1,000 Succeeded\n"

    def test_one_is_shown_in_lines(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain-pod", file, "sim/w-3"]) == 0
        first, *steps = capsys.readouterr().out.splitlines()
        assert first.startswith("sim/w-3: profile batch")
        assert [step.split()[1] for step in steps] == ["Running", "Ready", "Succeeded"]

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["sim/w-9"], 1),
            (["w-3"], 2),
            (["--file=none.yaml"], 2),
        ],
    )
    def test_what_is_not_known(
        self, file: str, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["explain-pod", file, *arguments]) == code
        assert capsys.readouterr().err.startswith("kwok-operator: ")

    def test_a_pod_or_a_file_must_be_given(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain-pod"]) == 2
        assert "NAMESPACE/NAME" in capsys.readouterr().err


WORDS = st.sampled_from(
    "apiVersion kind metadata spec name namespace labels replicas ordinals start completionMode"
    " completions backoffLimitPerIndex template restartPolicy initContainers annotations items"
    " terminationGracePeriodSeconds Job StatefulSet Pod Namespace Indexed batch Always".split()
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=10,
)


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(["Job", "StatefulSet", "Pod", "Namespace"]),
    parts=st.dictionaries(WORDS, JUNK, max_size=3),
    spec=JUNK,
)
def test_no_file_makes_it_fail(kind: str, parts: dict[str, Any], spec: Any) -> None:
    fields = spec if isinstance(spec, dict) else {"template": spec}
    odd = workload(kind, spec={"completionMode": "Indexed", "completions": 2} | fields)
    found = told(profile({"namespaceSelector": {}, **OFTEN}), odd | parts | {"kind": kind})
    assert all("\n" not in str(each) for each in (*found.findings, *found.notes))
