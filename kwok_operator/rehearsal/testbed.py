"""The testbed of a rehearsal: a cluster with the operator in it, and the scenario's processes.

    temporary control plane, or --kubeconfig (borrowed.py) --> CRDs, rights --> the operator
                                                           --> processes

Everything is undone in the reverse order, whatever happens: programs end with us even if we are
killed (programs.py), and so does a control plane of our own (controlplane/ownership.py). The
operator runs as its service account, with only the rights that deploy/ grants: requests of an
administrator would bypass the API server's queues.
"""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from kwok_operator import controlplane
from kwok_operator.errors import KwokOperatorError
from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.words import names_in_words
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.rehearsal.borrowed import BorrowedCluster, borrow, clear, only_this_cluster
from kwok_operator.rehearsal.calls import ShimCalls
from kwok_operator.rehearsal.clearing import Clearing
from kwok_operator.rehearsal.installing import (
    apply_list,
    crds,
    hold_stages,
    install,
    manifests,
    missing_grants,
    read_objects,
    rights_of,
    sources_of,
    wait_for_crds,
)
from kwok_operator.rehearsal.karpenterstart import KarpenterPlace, PreparedKarpenter
from kwok_operator.rehearsal.keptcluster import (
    OPERATORS_KUBECONFIG,
    KeptCluster,
    making_of,
    reused_cluster,
)
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.kueuestart import KueuePlace, PreparedKueue
from kwok_operator.rehearsal.logs import OPERATOR_LOG, log_of, log_of_shim
from kwok_operator.rehearsal.programs import Program, Ready, answers, listens, says
from kwok_operator.rehearsal.programversion import version_in_words
from kwok_operator.rehearsal.progress import Report, Say
from kwok_operator.rehearsal.scenario.autoscaler import autoscaler_flags
from kwok_operator.rehearsal.scenario.borrowing import (
    BEFORE_KARPENTER,
    BEFORE_THE_OPERATOR,
    REHEARSAL_NAMESPACE,
)
from kwok_operator.rehearsal.scenario.karpenter import KARPENTER_MODULE, Karpenter
from kwok_operator.rehearsal.scenario.karpenterenv import karpenter_environment
from kwok_operator.rehearsal.scenario.kueue import KUEUE_MODULE
from kwok_operator.rehearsal.scenario.model import Component, Scenario
from kwok_operator.rehearsal.scenario.process import ClusterAutoscaler, Readiness, ScenarioProcess
from kwok_operator.rehearsal.scenario.rights import OptionalRights, needed_rights
from kwok_operator.rehearsal.scenario.timeline import ApplySource
from kwok_operator.rehearsal.settings import DEMO_CLUSTER, RehearseSettings
from kwok_operator.signals import to_its_end
from kwok_operator.userfiles import write_secretly

_OPERATOR: Final = "kwok-operator"
# With -P, a signal.py beside the scenario can't replace Python's.
_OURS: Final = (sys.executable, "-P", "-m", "kwok_operator")
_LOG_FLAGS: Final = ("--log-format=json",)
"""Flags that make the programs log in the form that logs.py reads."""
_READY_WITHIN: Final = 60.0
_AUTOSCALER_WITHIN: Final = 120.0
_TOKEN_FOR: Final = "168h"

FindProgram = Callable[[str], Path | None]


class TestbedError(KwokOperatorError):
    """The rehearsal could not be set up. The message says what failed, and what to do."""


@dataclass(slots=True)
class Testbed:
    """A cluster with an operator, and the programs that run with it."""

    kubectl: AsyncKubectl
    client: KubeClient
    environment: Mapping[str, str]
    kubeconfig: Path
    folder: Path
    """The folder of the scenario, in which its commands run."""
    logs: Path
    versions: Mapping[str, str]
    find_program: FindProgram
    report: Report
    check_cluster: Callable[[], None] = lambda: None
    """Raises ControlPlaneError if a component of our own cluster has ended. It is slow, as it reads
    all processes.
    """
    cluster: controlplane.Cluster | None = None
    """The cluster of the rehearsal's own; None for a borrowed one."""
    borrowed: BorrowedCluster | None = None
    """The borrowed cluster; None if the rehearsal has its own."""
    kept: KeptCluster | None = None
    """The kept cluster, if it is one."""
    say: Say = lambda line, style="": None
    """Shows a line of the scenario's texts and commands."""
    programs: dict[str, Program] = field(default_factory=dict)
    """The running processes of the scenario, by name."""
    caveats: list[tuple[str, str]] = field(default_factory=list)
    """What the scenario may not expect, and isn't reported yet: the name of the process, and a
    sentence.
    """
    _beside: dict[str, list[Program]] = field(default_factory=dict)
    _prepared: dict[str, PreparedKarpenter] = field(default_factory=dict)
    _kueues: dict[str, PreparedKueue] = field(default_factory=dict)

    async def start(self, process: ScenarioProcess) -> None:
        """Starts a process of the scenario, and returns once it is ready. Raises ProgramError."""
        program = Program(process.name, log=self.logs / log_of(process.name))
        wanted, ready, within = process.ready, None, _READY_WITHIN
        given: Mapping[str, str] = {}
        if process.cluster_autoscaler is not None:
            address = _free_address()
            command = await self._autoscaler(process.name, process.cluster_autoscaler, address)
            ready, within = answers(f"http://{address}/health-check"), _AUTOSCALER_WITHIN
        elif process.karpenter is not None:
            address = _free_address()
            path = self.find_program(process.program) or Path(process.program)
            given = await self._karpenter(process.name, process.karpenter, path, address)
            command = [str(path)]
            ready, within = answers(f"http://{address}/readyz"), _AUTOSCALER_WITHIN
        elif process.kueue is not None:
            await self._start_kueue(program, process)
            return
        else:
            command = [self._filled(each) for each in process.command or ()]
            command[0] = str(self.find_program(command[0]) or command[0])
        if wanted is not None:
            ready, within = self._readiness(wanted, program), wanted.within
        await self._run(program, command, process, given=given)
        if ready is not None:
            await program.wait_until_ready(ready, within=within)

    async def start_ours(self, program: Program, *arguments: str) -> None:
        """Starts a command of kwok-operator. Raises ProgramError, ClusterError."""
        if (kept := self.kept) is None:
            await program.start([*_OURS, *arguments], env=self.environment, cwd=self.folder)
        else:
            launch = kept.commands.launch
            await program.start(arguments, env=self.environment, cwd=self.folder, launch=launch)

    async def _run(
        self,
        program: Program,
        command: Sequence[str],
        process: ScenarioProcess,
        *,
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        own = {name: self._filled(value) for name, value in process.env.items()}
        environment = {**self.environment, **given, **own}
        self.programs[process.name] = program
        await program.start(command, env=environment, cwd=self.folder)

    async def _start_kueue(self, program: Program, process: ScenarioProcess) -> None:
        """Starts Kueue, and waits until it is ready. At the first start, also prepares the cluster
        before, and applies the scenario's objects for Kueue after.
        """
        name, wanted = process.name, process.kueue
        assert wanted is not None
        path = self.find_program(wanted.binary) or Path(wanted.binary)
        place = KueuePlace(self.kubectl, self.client, self.folder, self.logs, self.kubeconfig)
        first = name not in self._kueues
        if first:
            ports = {
                "webhook_port": _port_of(_free_address()),
                "health_port": _port_of(_free_address()),
            }
            self._kueues[name] = await place.prepare(name, wanted, path, **ports)
        prepared = self._kueues[name]
        await self._run(program, [str(path), f"--config={prepared.configuration}"], process)
        await program.wait_until_ready(prepared.ready, within=_AUTOSCALER_WITHIN)
        if first:
            await place.apply(name, wanted)

    @property
    def beside(self) -> dict[str, Program]:
        """The programs that were started along with processes, such as shims, by name."""
        return {each.name: each for some in self._beside.values() for each in some}

    def karpenter_lives(self) -> bool:
        """Whether a Karpenter of the scenario runs."""
        running = self.programs.keys() & self._prepared.keys()
        return any(self.programs[name].status is None for name in running)

    async def stop(self, name: str) -> None:
        """Ends a process of the scenario, and the programs that were started along with it."""
        program = self.programs.pop(name, None)
        for each in [*([program] if program else ()), *self._beside.pop(name, ())]:
            await each.stop()

    async def stop_all(self, *, but: Collection[str] = ()) -> None:
        """Ends all processes at the same time, so several slow ones take no longer than one."""
        await asyncio.gather(*(self.stop(name) for name in [*self.programs] if name not in but))

    async def end(self, *, keep: bool) -> None:
        """Ends all processes. With `keep`, also removes Kueue's webhooks from the cluster, as their
        calls would fail from now on.
        """
        await self.stop_all()
        for prepared in self._kueues.values() if keep else ():
            await prepared.withdraw()

    def marked(self, manifest: Manifest) -> Manifest:
        """Returns the object to create: in a borrowed cluster, with the rehearsal's label and kept
        on nodes of groups.
        """
        return manifest if self.borrowed is None else self.borrowed.marked(manifest)

    def command(self, words: tuple[str, ...], env: Mapping[str, str]) -> dict[str, Any]:
        """Returns the arguments with which `kubectl.run` runs a command of the timeline."""
        command = [self._filled(each) for each in words]
        command[0] = str(self.find_program(command[0]) or command[0])
        environment = {**self.environment, **{k: self._filled(v) for k, v in env.items()}}
        return {"command": command, "environment": environment, "cwd": self.folder}

    def _filled(self, text: str) -> str:
        for name in ("KUBECONFIG", "REHEARSAL"):
            text = text.replace(f"$({name})", self.environment[name])
        return text

    def _readiness(self, wanted: Readiness, program: Program) -> Ready:
        if wanted.http is not None:
            return answers(self._filled(wanted.http))
        if wanted.tcp is not None:
            host, _, port = wanted.tcp.rpartition(":")
            return listens(host, int(port))
        return says(program.log, wanted.says or "")

    @property
    def _place(self) -> KarpenterPlace:
        return KarpenterPlace(self.kubectl, self.client, self.folder, self.logs, self.borrowed)

    async def crds_of_karpenter(self, scenario: Scenario) -> list[Manifest]:
        """Returns the CRDs that the Karpenter of the scenario brings."""
        crds = []
        for name, wanted in scenario.karpenters.items():
            program = self.find_program(wanted.binary) or Path(wanted.binary)
            crds += await self._place.crds(name, wanted, program)
        return crds

    async def crds_of_autoscalers(self, scenario: Scenario) -> list[Manifest]:
        """Returns the CRDs that the cluster-autoscalers of the scenario need by their flags."""
        needed = list[Manifest]()
        for process in scenario.processes:
            if (wanted := process.cluster_autoscaler) is not None:
                path = wanted.folder_of_crds(partial(self._path_beside, wanted.binary))
                sources = [ApplySource(path=path)] if path else []
                read = read_objects(self.kubectl, sources, folder=self.folder, label=process.name)
                needed += crds(await read)
        return needed

    def _path_beside(self, program: str, name: str) -> str:
        return str((self.find_program(program) or Path(program)).parent / name)

    def groups_of_karpenter(self) -> Mapping[str, KwokNodeGroupSpec] | None:
        """The groups from which Karpenter's instance types were made; None if that wasn't done yet,
        or if the types are from a file.
        """
        return next((each.groups for each in self._prepared.values()), None)

    async def _karpenter(
        self, name: str, wanted: Karpenter, program: Path, address: str
    ) -> dict[str, str]:
        """Prepares the cluster, if not done yet. Returns Karpenter's environment variables."""
        if name not in self._prepared:
            self._prepared[name] = await self._place.prepare(name, wanted, program)
            self.caveats += [(name, each) for each in self._prepared[name].caveats]
        return karpenter_environment(
            wanted,
            kubeconfig=str(self.kubeconfig),
            types=str(self._prepared[name].types),
            health_port=_port_of(address),
            metrics_port=_port_of(_free_address()),
        )

    async def _autoscaler(self, name: str, wanted: ClusterAutoscaler, address: str) -> list[str]:
        """Starts a shim for a cluster-autoscaler, and returns the autoscaler's command."""
        listen, health = _free_address(), _free_address()
        flags = [*_LOG_FLAGS, f"--listen={listen}", f"--metrics-listen={health}"]
        flags.append(f"--kubeconfig={self.kubeconfig}")
        flags.append(f"--calls-log={self.logs / name}{ShimCalls.SUFFIX}")
        if wanted.api_trouble is not None:
            trouble = self.logs / f"{name}.trouble.yaml"
            trouble.write_text(json.dumps(wanted.api_trouble), encoding="utf-8")
            flags.append(f"--api-trouble={trouble}")
        shim = Program(f"the shim of {name}", log=self.logs / log_of_shim(name))
        self._beside.setdefault(name, []).append(shim)
        await self.start_ours(shim, "shim", *flags)
        await shim.wait_until_ready(answers(f"http://{health}/readyz"), within=_READY_WITHIN)
        config = self.logs / f"{name}.cloud-config.yaml"
        config.write_text(json.dumps({"address": listen}), encoding="utf-8")
        program = self.find_program(wanted.binary)
        return [
            str(program or wanted.binary),
            *autoscaler_flags(
                wanted,
                cloud_config=str(config),
                kubeconfig=str(self.kubeconfig),
                namespace=REHEARSAL_NAMESPACE,
                address=address,
            ),
        ]


@asynccontextmanager
async def testbed(
    scenario: Scenario,
    settings: RehearseSettings,
    *,
    logs: Path,
    find_program: FindProgram,
    report: Report,
    say: Say | None = None,
    kept: KeptCluster | None = None,
) -> AsyncIterator[Testbed]:
    """Yields a cluster with a running operator, and undoes it all afterwards. A `kept` cluster is
    reset before, and stays. Raises KwokOperatorError, ControlPlaneError.
    """
    async with AsyncExitStack() as stack:
        if settings.reuse:
            kept = await stack.enter_async_context(reused_cluster(scenario, report=report))
        program, kubeconfig, own = await _cluster(scenario, settings, stack, report, kept)
        environment = {
            **os.environ,
            **(own.environment if own is not None else {"KUBECONFIG": str(kubeconfig)}),
            "REHEARSAL": str(logs.parent),
            "PATH": f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        kubectl = AsyncKubectl(program, environment)
        connection = await load_connection(kubeconfig=str(kubeconfig))
        client = await stack.enter_async_context(KubeClient(connection=connection))
        bed = Testbed(
            kubectl=kubectl,
            client=client,
            environment=environment,
            kubeconfig=kubeconfig,
            folder=settings.scenario.absolute().parent,
            logs=logs,
            versions={**await _versions(kubectl, kept), **await _programs(scenario, find_program)},
            find_program=find_program,
            report=report,
            say=say or (lambda line, style="": report(line)),
            check_cluster=own.check if own is not None else lambda: None,
            cluster=own,
            kept=kept,
        )
        clearing = Clearing(client, report=report, karpenter_lives=bed.karpenter_lives)
        if not settings.own_cluster:
            bed.borrowed = BorrowedCluster(client, kubectl, scenario, folder=bed.folder)
        await stack.enter_async_context(
            _installed(bed, scenario, clearing=clearing, keep=settings.keep, kept=kept)
        )
        operator = await _operator(bed, scenario)
        if settings.demo and settings.keep:
            stack.push_async_callback(operator.leave, while_there=kubeconfig)
        else:
            stack.push_async_callback(lambda: to_its_end(operator.stop()))
        if bed.borrowed is not None and not settings.keep:
            # While the operator still runs, as it deletes nodes fastest.
            stack.push_async_callback(clear, clearing, BEFORE_THE_OPERATOR, report=report)
        stack.push_async_callback(lambda: to_its_end(bed.end(keep=settings.keep)))
        if bed.borrowed is not None and not settings.keep and scenario.karpenters:
            stack.push_async_callback(_clear_karpenter, bed, scenario, clearing, report=report)
        yield bed


async def _clear_karpenter(
    made: Testbed, scenario: Scenario, clearing: Clearing, *, report: Report
) -> None:
    """Lets Karpenter remove what it has made. Once it has ended, its finalizers would keep its
    nodes.
    """
    running = scenario.karpenters.keys() & made.programs.keys()
    await to_its_end(made.stop_all(but=running))
    if running:
        await clear(clearing, BEFORE_KARPENTER, report=report)


async def _cluster(
    scenario: Scenario,
    settings: RehearseSettings,
    stack: AsyncExitStack,
    report: Report,
    kept: KeptCluster | None,
) -> tuple[Path, Path, controlplane.Cluster | None]:
    """Returns kubectl's path, the kubeconfig's, and the cluster if it is the rehearsal's own."""
    if not settings.own_cluster:
        if (path := shutil.which("kubectl")) is None:
            raise TestbedError("kubectl is not on PATH; install it, or leave --kubeconfig away")
        kubectl = Path(path)
        own = await stack.enter_async_context(only_this_cluster(kubectl, settings))
        return kubectl, own, None
    if kept is not None:
        await kept.fresh()
        return kept.cluster.kubectl, kept.cluster.kubeconfig, kept.cluster
    making = making_of(
        scenario,
        DEMO_CLUSTER if settings.demo else "rehearsal",
        keep=settings.keep,
        numbered=not (settings.demo and settings.keep),
    )
    cluster = await stack.enter_async_context(making)
    if settings.keep:
        report(f"the cluster stays: export KUBECONFIG={cluster.kubeconfig}")
    return cluster.kubectl, cluster.kubeconfig, cluster


async def _versions(kubectl: AsyncKubectl, kept: KeptCluster | None) -> dict[str, str]:
    if kept is not None and kept.version:
        return {"kubernetes": kept.version}
    versions = json.loads(await kubectl("version", "--output=json"))
    version = str(versions.get("serverVersion", {}).get("gitVersion", ""))
    if kept is not None:
        kept.version = version
    return {"kubernetes": version}


async def _programs(scenario: Scenario, find_program: FindProgram) -> dict[str, str]:
    """Returns the version of each Karpenter and Kueue of the scenario."""
    versions = {}
    for process in scenario.processes:
        module = KUEUE_MODULE if process.kueue is not None else KARPENTER_MODULE
        if not (process.kueue or process.karpenter):
            continue
        if path := find_program(process.program):
            with suppress(OSError):  # a program need not be readable
                versions[process.name] = await asyncio.to_thread(version_in_words, path, module)
    return versions


@asynccontextmanager
async def _installed(
    bed: Testbed,
    scenario: Scenario,
    *,
    clearing: Clearing,
    keep: bool,
    kept: KeptCluster | None,
) -> AsyncIterator[None]:
    """Installs the CRDs and the operator's rights; in a borrowed cluster, removes them after the
    block.
    """
    kubectl, borrowed = bed.kubectl, bed.borrowed
    if borrowed is not None:
        bed.report("looking at what is in the cluster")
    applied = await read_objects(
        kubectl, sources_of(scenario), folder=bed.folder, label=scenario.name
    )
    wanted = await _to_install(bed, needed_rights(scenario, applied))
    wanted += await bed.crds_of_autoscalers(scenario)
    if borrowed is None:
        wanted += hold_stages() if scenario.has_outages else []
        if kept is None:
            await install(kubectl, wanted)
        elif missing := kept.to_install(wanted):
            await apply_list(kubectl, missing)
        yield
        return
    wanted += await bed.crds_of_karpenter(scenario)
    async with borrow(
        borrowed, wanted, applied=applied, clearing=clearing, keep=keep, report=bed.report
    ):
        await wait_for_crds(kubectl, wanted)
        yield


async def _to_install(made: Testbed, rights: OptionalRights) -> list[Manifest]:
    """Returns the manifests to install. In a borrowed cluster, leaves out rights that the operator
    may need, but doesn't surely need, if the account may not grant them.
    """
    possible = rights.possible
    if made.borrowed is not None:
        denied = {
            name for name in sorted(possible) if await missing_grants(made.client, rights_of(name))
        }
        if denied:
            made.report(
                f"the operator goes without the rights of {names_in_words(sorted(denied))}, which"
                " this account may not grant; nothing that is applied needs them"
            )
        possible -= denied
    return manifests(rights.needed | possible)


async def _write_operators_kubeconfig(bed: Testbed, path: Path) -> None:
    """Writes the kubeconfig of the operator's service account. The file stays valid when a kept
    cluster is reset, as the reset doesn't delete the account.
    """
    token, shown = await asyncio.gather(
        bed.kubectl(
            "create", "token", _OPERATOR, f"--namespace={_OPERATOR}", f"--duration={_TOKEN_FOR}"
        ),
        bed.kubectl("config", "view", "--minify", "--raw", "-o", "json"),
    )
    config = json.loads(shown)
    (context,) = config["contexts"]
    config["users"] = [{"name": _OPERATOR, "user": {"token": token.strip()}}]
    context["context"] |= {"user": _OPERATOR, "namespace": _OPERATOR}
    await asyncio.to_thread(write_secretly, path, yaml.safe_dump(config).encode())


async def _operator(bed: Testbed, scenario: Scenario) -> Program:
    flags = dict(scenario.cluster.flags.get(Component.OPERATOR, {}))
    if scenario.operators_seed:
        flags["cloud-seed"] = scenario.operators_seed
    path = bed.kubeconfig.with_name(OPERATORS_KUBECONFIG)
    if bed.kept is None or not path.exists():
        await _write_operators_kubeconfig(bed, path)
    address = _free_address()
    given = [f"--{name}={value}" for name, value in flags.items()]
    flags_of_run = [*_LOG_FLAGS, f"--kubeconfig={path}", f"--listen={address}", *given]
    operator = Program("the operator", log=bed.logs / OPERATOR_LOG)
    await bed.start_ours(operator, "run", *flags_of_run)
    try:
        await operator.wait_until_ready(answers(f"http://{address}/readyz"), within=_READY_WITHIN)
    except BaseException:
        await operator.stop()
        raise
    return operator


def _free_address() -> str:
    """Returns an address of this machine on which no program listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
