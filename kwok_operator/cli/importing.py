"""Parses the flags of `kwok-operator import`, and runs the command."""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

from kwok_operator.cli.common import table_of_names
from kwok_operator.cli.firstverdict import add_flags, first_verdict, first_verdict_settings
from kwok_operator.errors import KwokOperatorError, SettingsError, one_line
from kwok_operator.formats.words import few_names, names_in_words
from kwok_operator.importing.folder import is_archive
from kwok_operator.importing.incidents.scenario import SCENARIO
from kwok_operator.importing.ledger import Ledger
from kwok_operator.importing.nodes.maxsize import MaxSize
from kwok_operator.importing.notes import Reason
from kwok_operator.importing.settings import ImportSettings
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.reporter import Reporter
from kwok_operator.settings import ABOVE_0, Values, add_cluster_flags, number_between, parsed

_RATE: Final = number_between(
    "a number of requests between 0 and 1000; 10 is the default", ABOVE_0, 1000
)
_MAX_SIZE: Final = re.compile(r"[0-9]{1,7}|x[0-9]{1,7}(\.[0-9]{1,3})?", re.ASCII)
_HELP: Final = """\
Reads a cluster, and writes a folder with its nodes and workloads for another cluster, as groups of
fake nodes and as pods that run nothing.

  kwok-operator import --context prod --output rehearsal/
  less rehearsal/ledger.md                               # what was left out or changed, and why
  kubectl --context laptop apply -k rehearsal/           # where the operator and kwok run
  kwok-operator rehearse rehearsal/scenario.yaml         # a cluster of its own, pods as they stood
  kwok-operator import --from snapshotz.json --from pods.yaml --output incident/   # no cluster

--rehearse plays the copy at once, as it stands and without each zone.

The cluster is only read. The folder keeps what decides scheduling and scaling: requests, selectors,
affinity, spread, tolerations, priorities, budgets. It never has environment, commands, Secrets,
ConfigMaps, volumes' contents, images or service accounts. The account needs get and list on the
kinds that are read: deploy/import/ has the ClusterRole.

An output that ends in .tar.gz is one file, unpacked with `tar xzf`. A new import replaces an
earlier one; a folder with other files is refused. The same cluster gives the same bytes.

Exit code 0: all went well; 1: something could not be read, the rest is there, and ledger.md says
what is missing; 2: wrong flags, or no cluster.
"""


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declares the command `import`. Its values are checked by `import_settings`."""
    of_import = "copy a cluster's nodes and workloads into files for another cluster"
    parser = command("import", run, of_import, _HELP)
    source = parser.add_argument_group("which cluster")
    add_cluster_flags(source)
    source.add_argument(
        "--from",
        dest="dumps",
        metavar="PATH",
        action="append",
        default=[],
        help="read this file or folder instead of a cluster: cluster-autoscaler's /snapshotz, "
        "`kubectl cluster-info dump`, a must-gather folder, or `kubectl get -o yaml` or json; may "
        "be given more than once",
    )
    source.add_argument(
        "--log",
        dest="logs",
        metavar="FILE",
        action="append",
        default=[],
        help="log of cluster-autoscaler, best with -v=4, as text, JSON or .gz: scenario.yaml then "
        "expects what it decided at the moment of --from; may be given more than once",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        required=True,
        help="folder to write, such as rehearsal/, or one file, such as rehearsal.tar.gz",
    )
    parser.add_argument(
        "--requests-per-second",
        metavar="N",
        help="most requests a second, one after the other; may be a fraction (default 10)",
    )
    what = parser.add_argument_group("what to read")
    what.add_argument(
        "--namespace",
        metavar="NAME",
        action="append",
        default=[],
        help="only the workloads of this namespace; may be given more than once",
    )
    what.add_argument(
        "--exclude-namespace",
        metavar="NAME",
        action="append",
        default=[],
        help="leave out the workloads of this namespace; may be given more than once",
    )
    _add_result_flags(parser.add_argument_group("what to write"))
    add_flags(parser.add_argument_group("a first verdict"))


def _add_result_flags(result: argparse._ArgumentGroup) -> None:
    result.add_argument(
        "--group-by",
        metavar="LABEL",
        action="append",
        default=[],
        help="label or annotation whose value names a node's group, tried before those of clouds; "
        "may be given more than once, the first that a node has counts",
    )
    result.add_argument(
        "--prices",
        metavar="FILE",
        help="CSV or YAML with the price of an instance type per hour, in a zone or everywhere",
    )
    result.add_argument(
        "--max-size",
        metavar="N|xN",
        help="most nodes of groups of which no bounds are known, so that an autoscaler may scale"
        " them: a number, or x2 for twice as many as there are",
    )
    result.add_argument(
        "--hpas",
        choices=("fixed", "metrics"),
        default="fixed",
        help="HorizontalPodAutoscalers: fixed leaves their workloads the size they have (default);"
        " metrics imports them, and their pods use what they used",
    )
    result.add_argument(
        "--keep-images", action="store_true", help="keep the names of images, which tell a lot"
    )
    result.add_argument(
        "--anonymize",
        action="store_true",
        help="replace names by hashes, the same everywhere; the table that translates them back is "
        "written beside the output, not into it",
    )
    result.add_argument(
        "--anonymize-table",
        metavar="FILE",
        help="path of that table (default: beside the output); an existing table gives the same "
        "names again",
    )


def import_settings(
    flags: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> ImportSettings:
    """The settings of `import`; raises SettingsError naming flag, value, remedy."""
    read = Values(flags, environ).read
    table = table_of_names(flags)
    namespaces = _names("--namespace", flags.namespace)
    excluded = _names("--exclude-namespace", flags.exclude_namespace)
    if both := sorted(namespaces & excluded):
        raise SettingsError(f"--exclude-namespace: {both[0]!r} is given to --namespace, too")
    most: str | None = flags.max_size
    return ImportSettings(
        output=Path(flags.output),
        dumps=_dumps(flags),
        logs=tuple(map(Path, flags.logs)),
        kubeconfig=read("kubeconfig", "", str) or None,
        context=read("context", "", str) or None,
        requests_per_second=read("requests-per-second", "10", _RATE),
        group_by=_keys("--group-by", flags.group_by),
        prices=Path(flags.prices) if flags.prices else None,
        namespaces=namespaces,
        excluded_namespaces=excluded,
        max_size=None if most is None else parsed("--max-size", most, _max_size),
        hpas=flags.hpas == "metrics",
        keep_images=flags.keep_images,
        anonymize=flags.anonymize,
        anonymize_table=table,
    )


def run(flags: argparse.Namespace) -> int:
    """Imports, prints the result, and returns the exit code."""
    from kwok_operator.importing.folder import OutputError
    from kwok_operator.importing.importer import run_import

    settings = import_settings(flags)
    rehearsal = first_verdict_settings(flags, settings.output)
    reporter = Reporter(sys.stderr)
    try:
        ledger = asyncio.run(run_import(settings, reporter=reporter))
    except OutputError as error:
        reporter.say(one_line(f"kwok-operator: {error}"))
        return 1
    except KwokOperatorError as error:
        reporter.say(one_line(f"kwok-operator: {error}"))
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        reporter.say("kwok-operator: stopped; nothing was written")
        return 130
    for line in summary(ledger, settings.output, prices=settings.prices is not None):
        print(line)
    code = 1 if ledger.missing else 0
    return code if rehearsal is None else max(code, first_verdict(settings.output, rehearsal))


def summary(ledger: Ledger, output: Path, *, prices: bool = False) -> list[str]:
    """Returns a summary of the import: what users must know, and where the details are. `prices`:
    --prices was given."""
    written = ", ".join(f"{count:,} {kind}" for kind, count in ledger.written.items())
    lines = [
        f"{output}: {written or 'nothing'}",
        f"left out: {ledger.dropped:,} objects; changed: {ledger.changed:,}; ledger.md says why",
    ]
    if not is_archive(output):
        lines.append(f"as it stood: kwok-operator rehearse {output / SCENARIO}")
    lines += filter(None, (_about_bounds(ledger), _about_prices(ledger, given=prices)))
    if ledger.missing:
        kinds = names_in_words(list(dict.fromkeys(each.kind for each in ledger.missing)))
        lines.append(f"could not be read, or not all of it: {kinds}")
    return lines


def _about_bounds(ledger: Ledger) -> str:
    unknown = sum(note.reason is Reason.NO_BOUNDS for note in ledger.notes)
    groups = "1 group" if unknown == 1 else f"{unknown} groups"
    remedy = "an autoscaler won't scale them; --max-size x2 gives them"
    return f"no bounds are known of {groups}: {remedy}" if unknown else ""


def _about_prices(ledger: Ledger, *, given: bool) -> str:
    if not given:
        return "groups have no prices, so costs can't be compared; --prices FILE gives them"
    lacking = [note for note in ledger.notes if note.reason is Reason.NO_PRICE]
    if not lacking:
        return ""
    names = sorted({note.detail or note.ref.name for note in lacking})
    groups = "1 group" if len(lacking) == 1 else f"{len(lacking)} groups"
    return one_line(f"--prices has no price for {groups}: {few_names(names)}")


def _max_size(text: str) -> MaxSize:
    number = Fraction(text.removeprefix("x")) if _MAX_SIZE.fullmatch(text) else Fraction()
    if not 1 <= number <= MAX_TARGET_SIZE:
        raise ValueError("is no number of nodes, such as 20, and no factor from 1 on, such as x2")
    return MaxSize(times=number) if text.startswith("x") else MaxSize(number=int(number))


def _names(flag: str, names: Iterable[str]) -> frozenset[str]:
    for name in names:
        if not is_object_name(name):
            raise SettingsError(f"{flag}: {name!r} is no name of a namespace")
    return frozenset(names)


def _dumps(flags: argparse.Namespace) -> tuple[Path, ...]:
    for flag in ("kubeconfig", "context"):
        if flags.dumps and getattr(flags, flag):
            raise SettingsError(f"--{flag}: names a cluster, and --from reads files; give only one")
    return tuple(map(Path, flags.dumps))


def _keys(flag: str, keys: Iterable[str]) -> tuple[str, ...]:
    if "" in keys:
        raise SettingsError(f"{flag}: '' is no key of a label")
    return tuple(keys)
