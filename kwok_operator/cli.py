"""The command line: `kwok-operator run`, `kwok-operator validate`.

Errors that a user can do something about are one line on standard error and exit code 1; a wrong
flag is exit code 2.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from kwok_operator import __version__, logs
from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.settings import ENV_PREFIX, add_run_flags, run_settings

_RUN_HELP = """\
Keeps every KwokNodeGroup of a cluster at its size, until it gets SIGTERM or SIGINT.

The cluster needs the CRD (crds/) and a kwok controller that manages nodes with the annotation
kwok.x-k8s.io/node=fake. Then:

  kubectl apply -f - <<<'{apiVersion: kwok-operator.io/v1alpha1, kind: KwokNodeGroup,
                          metadata: {name: demo}, spec: {targetSize: 10}}'
  kubectl get kng
  kubectl scale kng demo --replicas=1000
"""

_VALIDATE_HELP = """\
Checks files as the operator and the API server would, without a cluster.

FILEs are looked at together: a provider config finds its templates in another file. Known are
ConfigMaps (a provider config, templates), KwokNodeGroups, and plain Nodes, which are taken for the
templates of the config. A directory means every .yaml, .yml and .json file in it, - means standard
input.

The groups that would come out are printed; problems go to standard error, as FILE:LINE: SENTENCE.
Exit code 0: all is fine; 1: there are problems; 2: a file can't be read, or there is nothing to
check.

  kwok-operator validate provider-config.yaml templates.yaml
  kubectl get configmaps -o yaml kwok-provider-config templates | kwok-operator validate -
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    flags = _parser().parse_args(argv)
    if flags.command == "validate":
        return _validate(flags)
    return _run(flags)


def _validate(flags: argparse.Namespace) -> int:
    from kwok_operator.validate import run

    return run(flags.files)


def _run(flags: argparse.Namespace) -> int:
    try:
        settings = run_settings(flags)
    except SettingsError as error:
        print(f"kwok-operator: {error}", file=sys.stderr)
        return 2
    logs.configure(log_format=settings.log_format, level=settings.log_level)
    # Imported late: --help and wrong flags need not wait for what the operator is made of.
    from kwok_operator.controller.run import run

    try:
        asyncio.run(run(settings))
    except KwokOperatorError as error:
        print(f"kwok-operator: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kwok-operator",
        description="Groups of fake Kubernetes nodes, kept at their size.",
        epilog="kwok-operator COMMAND --help tells more.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="run the operator",
        description=_RUN_HELP,
        epilog=f"Each flag can be given as an environment variable: {ENV_PREFIX}MAX_TOTAL_NODES "
        "for --max-total-nodes. A flag wins.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_flags(run)
    check = commands.add_parser(
        "validate",
        help="check files before they are applied",
        description=_VALIDATE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("files", metavar="FILE", nargs="+", help="file, directory, or - for stdin")
    return parser


if __name__ == "__main__":
    sys.exit(main())
