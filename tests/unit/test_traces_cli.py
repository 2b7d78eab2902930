"""Flags of `record` and `replay`: what they mean, and what is refused before anything happens."""

from pathlib import Path

import pytest

from kwok_operator.cli.main import _parser, main
from kwok_operator.cli.traces import record_settings, replay_settings
from kwok_operator.importing.settings import RecordSettings, ReplaySettings


def test_flags_of_record() -> None:
    flags = _parser().parse_args(
        "record --output t.gz --for 24h --rotate 100Mi --rotate 1h30m --context prod"
        " --requests-per-second 2.5 --keep-images --anonymize --anonymize-table names".split()
    )
    assert record_settings(flags, {}) == RecordSettings(
        output=Path("t.gz"),
        context="prod",
        requests_per_second=2.5,
        seconds=86_400,
        rotate_bytes=100 * 2**20,
        rotate_seconds=5_400,
        keep_images=True,
        anonymize=True,
        anonymize_table=Path("names"),
    )
    plain = _parser().parse_args(["record", "--output", "t"])
    assert record_settings(plain, {}) == RecordSettings(output=Path("t"))


def test_flags_of_replay() -> None:
    flags = _parser().parse_args(
        "replay a b --speed 2.5 --from 10m --seed x --namespace-prefix r- --kubeconfig k"
        " --into-recorded-cluster".split()
    )
    assert replay_settings(flags, {}) == ReplaySettings(
        paths=(Path("a"), Path("b")),
        kubeconfig="k",
        speed=2.5,
        since=600,
        seed="x",
        namespace_prefix="r-",
        into_recorded_cluster=True,
    )
    plain = _parser().parse_args(["replay", "a"])
    assert replay_settings(plain, {"KWOK_OPERATOR_SEED": "y"}).seed == "y"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("record --output t --for tomorrow", "--for"),
        ("record --output t --for 0s", "--for"),
        ("record --output t --for 99999999999h", "--for"),
        ("record --output t --rotate often", "--rotate"),
        ("record --output t --rotate 0s", "--rotate"),
        ("record --output t --rotate 10", "--rotate"),
        ("record --output t --rotate 1e999Ei", "--rotate"),
        ("record --output t --requests-per-second 0", "--requests-per-second"),
        ("record --output t --requests-per-second nan", "--requests-per-second"),
        ("replay", "FILE"),
        ("replay a --clean", "--clean"),
        ("replay --clean --dry-run", "--clean"),
        ("replay a --speed 0", "--speed"),
        ("replay a --speed nan", "--speed"),
        ("replay a --speed inf", "--speed"),
        ("replay a --from now", "--from"),
        ("replay a --namespace-prefix A-", "--namespace-prefix"),
        (f"replay a --namespace-prefix {'a' * 60}", "--namespace-prefix"),
    ],
)
def test_wrong_flags(arguments: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split()) == 2
    assert capsys.readouterr().err.startswith(f"kwok-operator: {named}: ")


def test_what_can_not_be_played_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"line": "header", "version": 1, "start": "never"}\n')
    for arguments in (["replay", "--dry-run"], ["replay"]):
        assert main([*arguments, str(trace)]) == 2
        assert "trace.jsonl:1: start" in capsys.readouterr().err
    assert main(["replay", "--dry-run", str(tmp_path / "nowhere")]) == 2


def test_a_trace_that_was_cut_off_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Path(__file__).parents[2] / "deploy/samples/traces/rush-hour.jsonl"
    trace = tmp_path / "trace.jsonl"
    trace.write_bytes(sample.read_bytes()[:-10])
    assert main(["replay", "--dry-run", str(trace)]) == 1
    assert "ends in the middle" in capsys.readouterr().err


def test_a_trace_that_lacks_something_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file is read to its end, and nothing in them says that there was more."""
    for part in (1, 2, 4):
        header = f'"version": 1, "start": "2026-01-01T00:00:00Z", "part": {part}, "at": {part}'
        (tmp_path / f"{part}.jsonl").write_text(f'{{"line": "header", {header}}}\n')
    paths = [str(tmp_path / f"{part}.jsonl") for part in (1, 2, 4)]
    assert main(["replay", "--dry-run", *paths]) == 1
    said = capsys.readouterr().err
    assert "missing: 3" in said and "no end" in said
    assert main(["replay", "--dry-run", *paths[:2]]) == 0
    said = capsys.readouterr().err
    assert "missing:" not in said and "no end" in said


def test_a_dry_run_prints_requests(capsys: pytest.CaptureFixture[str]) -> None:
    sample = Path(__file__).parents[2] / "deploy/samples/traces/rush-hour.jsonl"
    assert main(["replay", "--dry-run", "--speed", "10", str(sample)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert '"at":9.0' in lines[-1] and '"method":"PATCH"' in lines[-1]
    assert all('"setup":true' in line for line in lines[:3])
