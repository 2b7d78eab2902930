"""Parses the flags of `kwok-operator record` and `replay`, and runs the commands."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kwok_operator.cli.common import printed, table_of_names
from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.times import parse_duration
from kwok_operator.importing.settings import RecordSettings, ReplaySettings
from kwok_operator.settings import Values, add_cluster_flags, is_namespace_name, number_between

if TYPE_CHECKING:
    from kwok_operator.importing.traces.files import Findings
    from kwok_operator.importing.traces.replaying import Replay

_RECORD_HELP: Final = """\
Watches the workloads and pods of a cluster, and writes a trace: which of them arrive, are scaled,
changed, end and are deleted, when, and with which shape.

  kwok-operator record --context prod --output trace.jsonl.gz --for 24h
  kwok-operator replay --context laptop trace.jsonl.gz

The cluster is only read, and the trace has the same fields as `import`. SIGTERM and SIGINT end the
recording normally; after a kill, the file can be read up to its last seconds. If a watch broke off
and something may be missing, the trace says so. The account needs get, list and watch on workloads
and pods: deploy/record/ has the ClusterRole.

Exit code 0: all went well; 1: something was not recorded, the rest is there; 2: wrong flags, or no
cluster.
"""

_REPLAY_HELP: Final = """\
Plays traces into a cluster: creates, scales, changes and deletes objects at the recorded times. It
first creates the objects that existed at the start; then the clock starts.

  kwok-operator replay --context laptop trace.jsonl.gz --speed 10
  kwok-operator replay --dry-run trace.jsonl.gz | less
  kwok-operator replay --context laptop --clean          # deletes all objects of replays

FILEs are traces of `record` (the parts of one in their order), the output of SimKube's `skctl
export`, or a list of pods of Alibaba's openb (cluster-trace-gpu-v2023). The same trace with the
same --seed gives the same requests.

At the end it says how late requests were sent, and what the API server refused. Exit code 0: all
went well; 1: something was refused, or not sent; 2: wrong flags, no cluster, no trace.
"""

_RATE: Final = number_between(
    "a number of requests per second from 0.1 to 10000, such as 10", 0.1, 10_000
)
_MAX_SPEED: Final = 1e6
_SPEED: Final = number_between(
    "a number above 0, such as 10 for ten times as fast", 1 / _MAX_SPEED, _MAX_SPEED
)
_MAX_PREFIX: Final = 40


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declares the commands `record` and `replay`. Their values are checked by `record_settings`
    and `replay_settings`."""
    of_record = "record the changes of a cluster's workloads as a trace"
    _add_record_flags(command("record", run_record, of_record, _RECORD_HELP))
    _add_replay_flags(command("replay", run_replay, "play a trace into a cluster", _REPLAY_HELP))


def _add_record_flags(parser: argparse.ArgumentParser) -> None:
    add_cluster_flags(parser.add_argument_group("which cluster"))
    parser.add_argument(
        "--output",
        metavar="FILE",
        required=True,
        help="file to write, compressed if its name ends in .gz; an existing file is not touched",
    )
    parser.add_argument(
        "--for", dest="for_", metavar="TIME", help="how long, such as 24h (default: until stopped)"
    )
    parser.add_argument(
        "--rotate",
        metavar="SIZE|TIME",
        action="append",
        default=[],
        help="begin a new file after this size, such as 100Mi, or this time, such as 1h; may be "
        "given for both. Files are numbered, and each can be replayed alone",
    )
    parser.add_argument(
        "--requests-per-second",
        metavar="N",
        help="most requests a second; may be a fraction (default 10)",
    )
    parser.add_argument(
        "--keep-images", action="store_true", help="keep the names of images, which tell a lot"
    )
    parser.add_argument(
        "--anonymize",
        action="store_true",
        help="replace names by hashes, the same everywhere; the table of what was what is written "
        "beside the output",
    )
    parser.add_argument(
        "--anonymize-table",
        metavar="FILE",
        help="where that table is, or is to be (default: beside the output); that of an import "
        "gives the same names",
    )


def _add_replay_flags(parser: argparse.ArgumentParser) -> None:
    add_cluster_flags(parser.add_argument_group("which cluster"))
    parser.add_argument("files", metavar="FILE", nargs="*", help="traces to play")
    how = parser.add_argument_group("how to play")
    how.add_argument("--speed", metavar="N", help="play N times as fast (default 1)")
    how.add_argument(
        "--from",
        dest="from_",
        metavar="TIME",
        help="begin at this time of the trace, such as 1h30m, with the objects of that time",
    )
    how.add_argument(
        "--seed", metavar="TEXT", help="seed of generated names, such as those of bare pods"
    )
    how.add_argument("--namespace-prefix", metavar="TEXT", help="prefix for all namespaces")
    how.add_argument(
        "--into-recorded-cluster",
        action="store_true",
        help="allow a replay into the recorded cluster",
    )
    other = parser.add_argument_group("instead of playing")
    other.add_argument(
        "--dry-run", action="store_true", help="print the requests, one JSON object per line"
    )
    other.add_argument(
        "--clean", action="store_true", help="delete all objects of replays in the cluster"
    )


def record_settings(
    flags: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> RecordSettings:
    """The settings of `record`; raises SettingsError naming flag, value, remedy."""
    read = Values(flags, environ).read
    table = table_of_names(flags)
    size: int | None = None
    seconds: float | None = None
    for text in flags.rotate:
        try:
            seconds = _positive(parse_duration(text))
        except ValueError:
            size = _size(text)
    return RecordSettings(
        output=Path(flags.output),
        kubeconfig=read("kubeconfig", "", str) or None,
        context=read("context", "", str) or None,
        requests_per_second=read("requests-per-second", "10", _RATE),
        seconds=_time("--for", flags.for_),
        rotate_bytes=size,
        rotate_seconds=seconds,
        keep_images=flags.keep_images,
        anonymize=flags.anonymize,
        anonymize_table=table,
    )


def replay_settings(
    flags: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> ReplaySettings:
    """The settings of `replay`; raises SettingsError naming flag, value, remedy."""
    read = Values(flags, environ).read
    if flags.clean and (flags.files or flags.dry_run):
        raise SettingsError("--clean: deletes, and plays nothing; give it alone, without FILE")
    if not (flags.clean or flags.files):
        raise SettingsError("FILE: none is given; name the trace to play, such as trace.jsonl.gz")
    return ReplaySettings(
        paths=tuple(Path(name) for name in flags.files),
        speed=read("speed", "1", _SPEED),
        since=_time("--from", flags.from_) or 0.0,
        seed=read("seed", "", str),
        namespace_prefix=read("namespace-prefix", "", _prefix),
        kubeconfig=read("kubeconfig", "", str) or None,
        context=read("context", "", str) or None,
        into_recorded_cluster=flags.into_recorded_cluster,
    )


def run_record(flags: argparse.Namespace) -> int:
    """Records, prints the result, and returns the exit code."""
    from kwok_operator.importing.traces.record import StoppedEarlyError, record, summary

    settings = record_settings(flags)
    try:
        recorder, outcome = asyncio.run(record(settings, log=_log))
    except StoppedEarlyError as error:
        _log(f"kwok-operator: {error}")
        return 130
    except KwokOperatorError as error:
        _log(f"kwok-operator: {error}")
        return 2
    for line in summary(settings, recorder, outcome):
        print(line)
    return 1 if outcome.unread or outcome.failed else 0


def run_replay(flags: argparse.Namespace) -> int:
    """Replays, prints or deletes, and returns the exit code."""
    from kwok_operator.importing.traces import replay
    from kwok_operator.importing.traces.report import summary

    settings = replay_settings(flags)
    try:
        if flags.dry_run:
            return _print(settings)
        if flags.clean:
            gone, wrong = asyncio.run(
                replay.remove(kubeconfig=settings.kubeconfig, context=settings.context, log=_log)
            )
            print(f"deleted: {gone:,} objects")
            for what, why in wrong.items():
                _log(f"not deleted: {what}: {why}")
            return 1 if wrong else 0
        plan, findings, report = asyncio.run(replay.replay(settings, log=_log))
    except KwokOperatorError as error:
        _log(f"kwok-operator: {error}")
        return 2
    for line in summary(plan, findings, report):
        print(line)
    if report.interrupted:
        return 130
    return 1 if report.refused or report.broken or _lacks_parts(plan, findings) else 0


def _print(settings: ReplaySettings) -> int:
    from kwok_operator.importing.traces.replay import planned, shown
    from kwok_operator.importing.traces.report import incomplete

    plan, findings, requests = planned(settings)

    def show() -> int:
        for request in requests:
            print(shown(request))
        return 0

    if printed(show, cut=1) == 0:
        for line in incomplete(plan, findings):
            _log(line)
    return 1 if _lacks_parts(plan, findings) else 0


def _lacks_parts(plan: "Replay", findings: "Findings") -> bool:
    return bool(findings.cut or plan.seen.missing_parts)


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _time(flag: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return _positive(parse_duration(text))
    except ValueError as error:
        raise SettingsError(f"{flag}: {text!r} is no time: write it as 90s, 10m or 24h") from error


def _positive(seconds: int) -> float:
    if not 0 < seconds < 100 * 366 * 86_400:
        raise ValueError("is not more than no time, and less than a century")
    return float(seconds)


def _size(text: str) -> int:
    try:
        size = int(parse_quantity(text))
    except ValueError:
        size = 0
    if not 1_000 <= size < 2**62:
        raise SettingsError(
            f"--rotate: {text!r} is neither a size from 1k on, such as 100Mi, nor a time such as 1h"
        )
    return size


def _prefix(text: str) -> str:
    if text and not (len(text) <= _MAX_PREFIX and is_namespace_name(f"{text}x")):
        raise ValueError("can't begin the name of a namespace; use one such as replay-")
    return text
