"""The command line: `kwok-operator run`, `shim`, `cloud-config`, `validate`, `convert`, `import`,
`record`, `replay`, `rehearse`, `compare`, `shrink`, `report`, `diff`, `why`, `explain-pod`,
`install` and `uninstall`.

Errors that a user can correct are one line on standard error and exit code 1; for a wrong flag, or
a kubeconfig that can't be used, the exit code is 2.
"""

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, Final

from kwok_operator import __version__
from kwok_operator.cli.common import printed
from kwok_operator.errors import ConnectionConfigError, KwokOperatorError, SettingsError
from kwok_operator.observability import logs
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

It reads KwokNodeGroups, KwokCapacityPools, KwokPodProfiles, ConfigMaps (a provider config,
templates), plain Nodes (as templates of the config), and all that `kwok-operator convert` reads.
All FILEs are read together: a provider config finds its templates in another file. A directory
means every .yaml, .yml and .json file in it, - means standard input.

The resulting groups are printed. Problems go to standard error, as FILE:LINE: SENTENCE. Exit code
0: no problems; 1: problems; 2: a file can't be read, or there is nothing to check.

  kwok-operator validate provider-config.yaml templates.yaml
  kubectl get configmaps -o yaml kwok-provider-config templates | kwok-operator validate -
"""


_CONVERT_HELP = """\
Prints KwokNodeGroups for Cluster API's objects, as cluster-autoscaler would see them.

It reads MachineDeployments, MachineSets and MachinePools, the infrastructure templates that they
name, Clusters with their ClusterClasses, and CRDs of infrastructure providers, as printed by
`kubectl get -o yaml` or stored in Git. All FILEs are read together. A directory means every .yaml,
.yml and .json file in it, - means standard input.

Problems for cluster-autoscaler go to standard error, as FILE:LINE: SENTENCE. Exit code 0: no
problems; 1: problems; 2: a file can't be read, or there is nothing to convert. $CAPI_GROUP and
$CAPI_SCALE_ZERO_DEFAULT_ARCH work as in cluster-autoscaler.

  kubectl get -A -o yaml machinedeployments,machinepools,awsmachinetemplates > fleet.yaml
  kwok-operator convert fleet.yaml | kubectl apply -f -
"""

_SHIM_HELP = """\
Lets cluster-autoscaler scale the groups that have spec.autoscaling, over its protocol externalgrpc.

The shim reads groups and nodes, and writes only a group's targetSize and scaleDown.nodesToDelete.
The operator does the rest. In a terminal, with any cluster:

  kwok-operator shim --listen unix:/tmp/kwok.sock
  kwok-operator cloud-config --listen unix:/tmp/kwok.sock > cloud-config.yaml
  cluster-autoscaler --cloud-provider=externalgrpc --cloud-config=cloud-config.yaml ...
"""

_CLOUD_CONFIG_HELP = """\
Prints cluster-autoscaler's file for --cloud-config, which says where the shim is. Comments in it
list the other flags. Give the paths of cluster-autoscaler's own certificates, not of the shim's.
"""

_INSTALL_HELP = """\
Installs the operator into a cluster: the CRDs, its namespace, its rights, its Deployment. This
program contains the manifests.

  kwok-operator install --dry-run | less
  kwok-operator install --apply --wait --image=registry.example.com/kwok-operator:1.2.3
  kwok-operator install --dry-run --overlay=ha | kubectl diff --filename=-

--apply uses server-side apply, and prints a line for each object. A second run changes nothing; a
newer version upgrades. An existing namespace is left as it is. Install the kwok controller
yourself. For other changes, such as another namespace, write an overlay for kustomize.
"""

_UNINSTALL_HELP = """\
Deletes all objects of `kwok-operator install --apply`, whichever the overlay: first the CRDs, and
with them all groups and their nodes, last the namespace with everything in it. It doesn't ask.

Objects that others applied stay, and so does a namespace that existed before.
"""


Run = Callable[[argparse.Namespace], int]
"""Runs a command, and returns its exit code."""
AddCommand = Callable[..., argparse.ArgumentParser]
"""Adds a command to the parser, and returns the command's own parser."""

_VARIABLES: Final = "Each flag can be given as an environment variable: {} for {}. A flag wins."

_SEVERAL: Final = {"compare": "scenarios", "validate": "files", "convert": "files"}
"""Commands that take several files, and the name of their argument for these."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    parser = _parser(argv[0] if argv else "")
    flags, more = parser.parse_known_args(argv)
    several = getattr(flags, _SEVERAL.get(flags.command, ""), None)
    if more and (several is None or any(each.startswith("-") for each in more)):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if several is not None:
        several += more  # argparse doesn't accept files after a flag
    try:
        return int(flags.run(flags))
    except (SettingsError, ConnectionConfigError) as error:
        print(f"kwok-operator: {error}", file=sys.stderr)
        return 2


def preload() -> None:
    """Imports all that `run` and `shim` need, for processes that are forked from this one."""
    import kwok_operator.clusterapi.emulate
    import kwok_operator.clusterapi.mirror
    import kwok_operator.operator.run
    import kwok_operator.shim.run  # noqa: F401

    _parser()
    with suppress(ImportError):
        import uvloop  # noqa: F401


def _validate(flags: argparse.Namespace) -> int:
    from kwok_operator.cli.validate import run, run_convert
    from kwok_operator.clusterapi.settings import terms

    command = run if flags.command == "validate" else run_convert
    return command(flags.files, terms(flags))


def _run(flags: argparse.Namespace) -> int:
    from kwok_operator.clusterapi.settings import clusterapi_settings

    settings, clusterapi = run_settings(flags), clusterapi_settings(flags)
    logs.configure(log_format=settings.log_format, level=settings.log_level)
    # Imported late, so that --help and wrong flags don't wait for the operator's modules.
    from kwok_operator.operator.run import run

    # All imported modules stay for good. Without freeze(), the garbage collector goes through all
    # of them now and then, which stops the event loop for 20 ms and more.
    gc.collect()
    gc.freeze()
    return _until_it_ends(run(settings, clusterapi), asyncio.new_event_loop)


def _shim(flags: argparse.Namespace) -> int:
    from kwok_operator.shim.settings import shim_settings

    settings = shim_settings(flags)
    logs.configure(log_format=settings.log_format, level=settings.log_level)
    from kwok_operator.shim.run import run

    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):  # uvloop is only faster, and not built for every platform
        import uvloop

        make_loop = uvloop.new_event_loop
    return _until_it_ends(run(settings), make_loop)


def _cloud_config(flags: argparse.Namespace) -> int:
    from kwok_operator.settings import Values
    from kwok_operator.shim.settings import cloud_config, listen_settings

    sys.stdout.write(cloud_config(*listen_settings(Values(flags, os.environ))))
    return 0


def _install(flags: argparse.Namespace) -> int:
    from kwok_operator.cli.install_settings import install_settings

    settings = install_settings(flags)
    from kwok_operator.cli.install import install, uninstall

    command = install if flags.command == "install" else uninstall
    return printed(lambda: _until_it_ends(command(settings), asyncio.new_event_loop), cut=1)


def _until_it_ends(
    program: Coroutine[Any, Any, None], make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> int:
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(program)
    except ConnectionConfigError:
        raise
    except KwokOperatorError as error:
        print(f"kwok-operator: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser(first: str = "") -> argparse.ArgumentParser:
    """Makes the parser for all commands; importing their modules takes 0.8 s and 6 MB. So if
    `first`, the first argument, is a command, only that command's module is imported."""
    parser = argparse.ArgumentParser(
        prog="kwok-operator",
        description="Keeps groups of fake Kubernetes nodes at their size, and rehearses with them.",
        epilog="kwok-operator COMMAND --help explains a command.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(
        name: str, run: Run, help_line: str, text: str, epilog: str = ""
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=help_line,
            description=text,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(run=run)
        return added

    # One function adds both commands of a module that has two.
    for add in dict.fromkeys([_COMMANDS[first]] if first in _COMMANDS else _COMMANDS.values()):
        add(command)
    return parser


# Imported late, as only a command's own module knows its flags.


def _add_run(command: AddCommand) -> None:
    from kwok_operator.clusterapi.settings import add_clusterapi_flags

    epilog = _VARIABLES.format(f"{ENV_PREFIX}MAX_TOTAL_NODES", "--max-total-nodes")
    run = command("run", _run, "run the operator", _RUN_HELP, epilog)
    add_run_flags(run)
    add_clusterapi_flags(run)


def _add_shim(command: AddCommand) -> None:
    from kwok_operator.shim.settings import add_shim_flags

    epilog = _VARIABLES.format(f"{ENV_PREFIX}LISTEN", "--listen")
    help_line = "let cluster-autoscaler scale groups"
    add_shim_flags(command("shim", _shim, help_line, _SHIM_HELP, epilog))


def _add_cloud_config(command: AddCommand) -> None:
    from kwok_operator.shim.settings import add_listen_flags

    help_line = "print the file for cluster-autoscaler's --cloud-config"
    add_listen_flags(command("cloud-config", _cloud_config, help_line, _CLOUD_CONFIG_HELP))


def _add_validate(command: AddCommand) -> None:
    from kwok_operator.clusterapi.settings import add_discovery_flag

    check = command("validate", _validate, "check files before you apply them", _VALIDATE_HELP)
    of_convert = "make groups from Cluster API's objects"
    convert = command("convert", _validate, of_convert, _CONVERT_HELP)
    for each in (check, convert):
        each.add_argument("files", metavar="FILE", nargs="+", help="file, directory, - for stdin")
        add_discovery_flag(each)


def _add_install(command: AddCommand) -> None:
    from kwok_operator.cli import install_settings as installing

    of_install = "print the operator's manifests, or apply them to a cluster"
    overlays = installing.overlays_in_words()
    installing.add_install_flags(command("install", _install, of_install, _INSTALL_HELP, overlays))
    of_uninstall = "delete all objects of install"
    installing.add_uninstall_flags(command("uninstall", _install, of_uninstall, _UNINSTALL_HELP))


@cache
def _of_module(name: str) -> Callable[[AddCommand], None]:
    """Returns a function that adds the commands of a module in this folder."""

    def add(command: AddCommand) -> None:
        import_module(f"kwok_operator.cli.{name}").add_commands(command)

    return add


_COMMANDS: Final[dict[str, Callable[[AddCommand], None]]] = {
    "run": _add_run,
    "shim": _add_shim,
    "cloud-config": _add_cloud_config,
    "validate": _add_validate,
    "convert": _add_validate,
    "import": _of_module("importing"),
    "record": _of_module("traces"),
    "replay": _of_module("traces"),
    "rehearse": _of_module("rehearsing"),
    "compare": _of_module("comparing"),
    "shrink": _of_module("shrink"),
    "report": _of_module("reports"),
    "diff": _of_module("reports"),
    "why": _of_module("why"),
    "explain-pod": _of_module("explainpod"),
    "install": _add_install,
    "uninstall": _add_install,
}
"""The function that adds each command, in the order of --help."""


if __name__ == "__main__":
    sys.exit(main())
