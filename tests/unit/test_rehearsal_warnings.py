"""Warnings and errors that programs log during a rehearsal."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.observability.logs import JsonFormatter
from kwok_operator.rehearsal import following
from kwok_operator.rehearsal.following import FollowedFile
from kwok_operator.rehearsal.judge.logged import (
    MOST_TEXTS,
    OTHERS,
    WarningCounts,
    read_json,
    read_klog,
    read_zap,
)
from kwok_operator.rehearsal.judge.recording import RecordedLine, WarningLine
from kwok_operator.rehearsal.judge.verdict import junit_xml, summary, verdict_json
from kwok_operator.rehearsal.logs import ProgramWarnings
from kwok_operator.rehearsal.report.inmarkdown import in_markdown
from kwok_operator.rehearsal.report.page import page
from kwok_operator.rehearsal.scenario.model import Scenario
from tests.fakes.rehearsed import judge, run

CA = {"name": "ca", "clusterAutoscaler": {}}
SCENARIO = Scenario.model_validate(
    {"name": "a", "processes": [CA], "expect": [{"figure": "cost", "atMost": 1}]}
)
LONG = f"pods is forbidden. To allow it: kubectl apply {'-f deploy/components/x.yaml ' * 20}end"


def logged(level: str, message: str, **more: str) -> str:
    return json.dumps({"level": level, "message": message, **more}) + "\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (logged("warning", "not\ndone"), "not done"),
        (logged("error", "failed", traceback="Traceback\n x\nKeyError: 1"), "failed (KeyError: 1)"),
        (logged("info", "done"), ""),
        ("Traceback (most recent call last):", ""),
        ('["warning"]', ""),
    ],
)  # fmt: skip
def test_warnings_in_json(line: str, said: str) -> None:
    assert read_json(line.encode()).warning == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (logged("WARN", "not\ndone"), "not done"),
        (logged("ERROR", "failed", controller="state", error="no"), "failed (state: no)"),
        (logged("PANIC", "over"), "over"),
        ('{"level": "error", "msg": "failed", "error": "no"}', "failed (no)"),  # Kueue
        ('{"level": "error", "msg": "again", "error": "pending ungate operations"}', ""),
        ('{"level": "error", "msg": "Cert secret is not well-formed, missing ca.crt"}', ""),
        (logged("INFO", "done", error="none"), ""),
        (logged("error", "of another program"), ""),
        ('{"level": ["ERROR"]}', ""),
        ("panic: over", ""),
    ],
)
def test_warnings_of_zap(line: str, said: str) -> None:
    assert read_zap(line.encode()).warning == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("W1124 16:40:38.123456   12345 a.go:7] not done", "a.go:7] not done"),
        ("E1124 16:40:38.123456       1 a.go:7] failed", "a.go:7] failed"),
        ("F1124 16:40:38.123456 1 a.go:7] over", "a.go:7] over"),
        ("I1124 16:40:38.123456 1 a.go:7] W1124 done", ""),
        ("Warning: x", ""),
        ("W1124 16:40:38.123456 1 a.go:7] AcceptableRanges have not been populated yet. Skip", ""),
    ],
)
def test_warnings_in_klog(line: str, said: str) -> None:
    assert read_klog(line.encode()).warning == said


def test_the_same_text_is_one_line_a_second_with_a_count() -> None:
    counts, lines = WarningCounts(), list[WarningLine]()
    for tenth in range(25):
        counts.add("operator", "again")
        lines += counts.due(tenth / 10)
    lines += counts.due(2.5, every=True)
    assert [(line.t, line.count) for line in lines] == [(0, 1), (1, 10), (2, 10), (2.5, 4)]


def test_a_text_of_before_the_run_is_new_in_it() -> None:
    counts = WarningCounts()
    counts.add("shim", "again")
    [earlier] = counts.due(0.0, every=True, before=True)
    assert earlier.before
    assert counts.add("shim", "again")
    assert list(counts.due(0.1)) == [WarningLine(0.1, "shim", "again", 1)]


def test_texts_beyond_the_most_are_counted() -> None:
    counts = WarningCounts()
    for number in range(3 * MOST_TEXTS):
        counts.add("operator", f"of node {number}")
    lines = list(counts.due(1.0))
    assert len(lines) == MOST_TEXTS + 1
    assert (lines[-1].message, lines[-1].count) == (OTHERS, 2 * MOST_TEXTS)


def test_a_log_is_read_on_when_it_is_begun_anew_or_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    followed = FollowedFile(path)
    assert followed.lines() == []
    path.write_text("one\ntwo\nhal")
    assert followed.lines() == [b"one", b"two"]
    path.write_text("one\ntwo\nhalf\n")
    assert followed.lines() == [b"half"]
    path.write_text("anew\n")
    assert followed.lines() == [b"anew"]
    monkeypatch.setattr(following, "_KEPT_BYTES", 3)
    path.write_text("cut\n")
    assert followed.lines() == []
    path.write_text("cut\nthen\n")
    assert followed.lines() == [b"then"]
    monkeypatch.setattr(following, "_MOST_BYTES", 4)
    path.write_text("cut\nthen\nlong without end")
    assert followed.lines() == [b"long"]


def test_what_was_before_the_run_is_shown_and_apart(tmp_path: Path) -> None:
    (tmp_path / "operator.log").write_text(logged("warning", "of a run before"))
    told, lines = list[str](), list[RecordedLine]()
    warnings = ProgramWarnings(SCENARIO, tmp_path, report=told.append)
    with (tmp_path / "operator.log").open("a") as log:
        log.write(logged("warning", "slow") * 2)
    warnings.begin(lines.append)
    assert told == ["warning of operator: slow"]
    with (tmp_path / "ca.shim.log").open("a") as log:
        log.write(logged("error", "failed"))
    (tmp_path / "ca.log").write_text("E1124 16:40:38.123456 1 a.go:7] not reached\n")
    warnings.record(lines.append, t=3.0, last=True)
    assert lines == [
        WarningLine(0.0, "operator", "slow", 2, before=True),
        WarningLine(3.0, "ca", "a.go:7] not reached"),
        WarningLine(3.0, "shim", "failed"),
    ]
    assert len(told) == 1


def test_what_ended_before_the_run_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(level: int, message: str, **extra: str) -> str:
        caplog.clear()
        logging.getLogger("t").log(level, message, extra=extra)
        return JsonFormatter().format(caplog.records[0]) + "\n"

    caplog.set_level(logging.INFO)
    told, lines = list[str](), list[RecordedLine]()
    warnings = ProgramWarnings(SCENARIO, tmp_path, report=told.append)
    with (tmp_path / "operator.log").open("a") as log:
        for trouble in ("crd", "pods"):
            log.write(said(logging.WARNING, f"no {trouble}", trouble=trouble))
        log.write(said(logging.WARNING, "lasts"))
        log.write(said(logging.INFO, "there", over="crd"))
    warnings.begin(lines.append)
    assert told == [f"warning of operator: {text}" for text in ("no crd", "no pods", "lasts")]
    with (tmp_path / "operator.log").open("a") as log:
        log.write(said(logging.WARNING, "no crd", trouble="crd"))
        log.write(said(logging.INFO, "there", over="crd"))
    warnings.record(lines.append, t=3.0, last=True)
    assert lines == [
        WarningLine(0.0, "operator", "no pods", before=True),
        WarningLine(0.0, "operator", "lasts", before=True),
        WarningLine(3.0, "operator", "no crd"),
    ]


def outputs(*warnings: WarningLine, expect: Any = ()) -> tuple[str, list[str]]:
    """The last line on the terminal, and all outputs."""
    judged = judge(run(*warnings), expect=expect)
    terminal = list(summary(judged))
    texts = ["\n".join(terminal), page(judged), in_markdown(judged), junit_xml(judged)]
    return terminal[-1], [*texts, json.dumps(verdict_json(judged))]


def test_a_warning_stands_in_every_output_whole() -> None:
    last, texts = outputs(WarningLine(3, "operator", LONG, 2))
    assert last.startswith("passed, but with 2 warnings of the operator: ")
    for text in texts:
        assert LONG in text.replace("\\", "")
    for text in texts[:3]:
        assert "passed, but with 2 warnings of the operator" in text
    assert json.loads(texts[-1])["verdict"] == "passed"


@pytest.mark.parametrize(
    ("line", "expect", "last"),
    [
        (WarningLine(3, "ca", "x"), [], "passed, but with 1 warning of ca: "),
        (WarningLine(3, "ca", "x"), [{}], "passed: "),
        (WarningLine(3, "ca", "x"), [{"program": "ca"}], "passed: "),
        (WarningLine(3, "ca", "x"), [{"program": "shim"}], "passed, but with 1 warning of ca: "),
        (
            WarningLine(0, "operator", "x", before=True),
            [{}],
            "passed, but with 1 warning of the operator before the run: ",
        ),
    ],
)
def test_a_warning_that_is_expected_is_no_but(
    line: WarningLine, expect: list[dict[str, str]], last: str
) -> None:
    most = 0 if line.before else 1
    told = [{"figure": "warnings", "of": of, "atMost": most} for of in expect]
    assert outputs(line, expect=told)[0].startswith(last)
