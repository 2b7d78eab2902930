"""Parses the flags of `kwok-operator import --rehearse`, and plays the copy of a cluster that the
import made."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kwok_operator.errors import KwokOperatorError, SettingsError, one_line
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.settings import ABOVE_0, number_between, parsed

_MINUTES: Final = number_between("a number of minutes; 10 is the default", ABOVE_0, 10_000)


def add_flags(flags: argparse._ArgumentGroup) -> None:
    flags.add_argument(
        "--rehearse",
        action="store_true",
        help="play the copy on this machine: does it hold as it stands, and does it survive the"
        " loss of each zone? The verdict is written beside the output, into NAME-verdict/",
    )
    flags.add_argument(
        "--binary",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="cluster-autoscaler=PATH, which then adds nodes once a zone is lost",
    )
    flags.add_argument(
        "--within",
        metavar="MINUTES",
        help="begin no more zones when so many minutes are over; the largest come first (default"
        " 10)",
    )


@dataclass(frozen=True, slots=True)
class FirstVerdictSettings:
    output: Path
    binaries: Mapping[str, Path]
    until: float
    """The time of the monotonic clock at which the rehearsal must have ended."""


def first_verdict_settings(flags: argparse.Namespace, output: Path) -> FirstVerdictSettings | None:
    """Reads the settings of --rehearse; returns None without this flag. Raises SettingsError."""
    from kwok_operator.cli.rehearsing import binaries, surroundings
    from kwok_operator.importing.folder import check_output, is_archive, stem
    from kwok_operator.rehearsal.firstverdict.playing import check_folder
    from kwok_operator.rehearsal.scenario.process import DEFAULT_BINARY
    from kwok_operator.rehearsal.scenario.surroundings import UnusableReferenceError

    if not flags.rehearse:
        if flags.binary or flags.within:
            raise SettingsError("--binary and --within: are for --rehearse; give it, too")
        return None
    if is_archive(output):
        raise SettingsError(f"--output: {output} is an archive; --rehearse needs a folder")
    minutes = parsed("--within", flags.within or "10", _MINUTES)
    given = binaries(flags.binary)
    if unknown := sorted(given.keys() - {DEFAULT_BINARY}):
        raise SettingsError(f"--binary: {unknown[0]!r} is no {DEFAULT_BINARY}; name no other")
    check_output(output)
    place = output.absolute().with_name(f"{stem(output)}-verdict")
    around = surroundings(RehearseSettings(scenario=place / "it.yaml", binaries=given))
    for name in given:
        try:
            around.check_program(name)
        except UnusableReferenceError as error:
            raise SettingsError(f"--binary: {name} {error}") from error
    check_folder(place)
    return FirstVerdictSettings(place, given, time.monotonic() + 60 * minutes)


def first_verdict(copy: Path, settings: FirstVerdictSettings) -> int:
    """Plays the imported copy of a cluster, prints the verdict, and returns the exit code."""
    from kwok_operator.cli.rehearsing import surroundings
    from kwok_operator.cli.validate import complain
    from kwok_operator.rehearsal.firstverdict.answers import all_held, lines_of
    from kwok_operator.rehearsal.firstverdict.playing import VERDICT, FirstVerdictPlayer
    from kwok_operator.rehearsal.progress import screen

    try:
        with screen(sys.stderr, complain, environ=os.environ) as (report, show, say):
            player = FirstVerdictPlayer(
                copy,
                settings.output,
                surroundings,
                report,
                show=show,
                say=say,
                binaries=settings.binaries,
                until=settings.until,
            )
            verdict = asyncio.run(player.play())
    except (KwokOperatorError, OSError) as error:
        complain(one_line(f"kwok-operator: {error}"))
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        complain("kwok-operator: interrupted; the import is written")
        return 130
    for line in lines_of(verdict.facts, verdict.answers):
        print(line)
    print(f"verdict: {settings.output / VERDICT}")
    for reason in verdict.left:
        complain(f"kwok-operator: {reason}")
    if verdict.interrupted:
        return 130
    return 0 if all_held(verdict.answers) and not verdict.left else 1
