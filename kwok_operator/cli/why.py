"""`kwok-operator why`: explains why pods waited, from the recording of a rehearsal or on a live
cluster."""

import argparse
import heapq
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kwok_operator.cli.common import printed
from kwok_operator.errors import TERMINAL_LINE, RecordingError, SettingsError, one_line
from kwok_operator.settings import add_cluster_flags

if TYPE_CHECKING:
    from kwok_operator.causes.model import Chain

_HELP: Final = """\
Says why pods waited, and why nothing was scaled up for them, by the recording of a rehearsal, or
on a live cluster, ours or any other.

  kwok-operator why results                       the causes, by workload
  kwok-operator why results/recording.jsonl.gz shop/web-7
  kwok-operator why results web                   all pods of a workload, or whose names begin so

  kwok-operator why shop/web-7 --context prod     a pod of a live cluster, as it is now

RECORDING is the file or its folder. POD is NAME, NAMESPACE/NAME, a workload such as web or
deployment/web, or the beginning of pods' names.

With --kubeconfig, --context or --namespace it reads a cluster, and writes nothing: docs/why.md has
the rights that it needs.

Exit code 0: answered; 1: no such pod; 2: the recording or the cluster can't be read.
"""
_USAGE: Final = """\
kwok-operator why [-h] RECORDING [POD]
       kwok-operator why [-h] [--kubeconfig FILE] [--context NAME] [-n NAMESPACE] POD"""
_MOST_CHAINS: Final = 10
_LIVE: Final = "for a pod of a live cluster add --context, --kubeconfig or --namespace"


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    why = command("why", run, "say why pods waited", _HELP)
    why.usage = _USAGE
    why.add_argument("recording", metavar="RECORDING", type=Path, help="the file or its folder")
    why.add_argument("pod", metavar="POD", nargs="?", default="", help="a pod or a workload")
    cluster = why.add_argument_group("a live cluster, then POD is the only argument")
    add_cluster_flags(cluster)
    cluster.add_argument("-n", "--namespace", help="the pod's namespace, if not its context's")


def run(flags: argparse.Namespace) -> int:
    """Prints the chains of causes of the named pods; without names, how many pods of each workload
    waited for which cause. Raises SettingsError and ConnectionConfigError.
    """
    return printed(partial(_explain, flags), cut=0)


def _explain(flags: argparse.Namespace) -> int:
    if flags.kubeconfig or flags.context or flags.namespace:
        from kwok_operator.cli.whylive import run_live

        if flags.pod:
            raise SettingsError("why: of a live cluster give the POD only, not a RECORDING")
        return run_live(str(flags.recording), flags)
    try:
        lines = list(_lines(flags.recording, flags.pod))
    except (RecordingError, SettingsError) as error:
        hint = "" if flags.recording.exists() else f"; {_LIVE}"
        _complain(f"{error}{hint}")
        return 2
    for line in lines:
        print(line)
    if not lines:
        which = f"no pod {flags.pod}" if flags.pod else "no pods that waited"
        _complain(f"{flags.recording} has {which}")
    return 0 if lines else 1


def _complain(text: str) -> None:
    print(f"kwok-operator: {one_line(text, limit=TERMINAL_LINE)}", file=sys.stderr)


def _ends_early(t: float) -> None:
    _complain(f"the recording ends at {t:.1f} s, before its run did: answers are as of then")


def _lines(recording: Path, query: str) -> Iterator[str]:
    from kwok_operator.causes.podfilter import PodFilter
    from kwok_operator.causes.words import Answers, chain_lines
    from kwok_operator.rehearsal import outputs

    exact, alike = _Longest(), _Longest()
    answers, pods = Answers(), PodFilter(query)
    for chain in outputs.chains(
        recording,
        wanted=pods.wanted,
        skips=pods.skips,
        on_early_end=_ends_early,
    ):
        answers.add(chain)
        if query:
            alike.add(chain)
            if query in (chain.pod, chain.pod.partition("/")[2]):
                exact.add(chain)
    matching = exact if exact.count else alike
    if not query or matching.count > _MOST_CHAINS:
        yield from answers.lines()
    for chain in matching.chains()[: None if matching.count <= _MOST_CHAINS else 1]:
        yield from chain_lines(chain)


class _Longest:
    """The chains of causes of the pods that waited longest."""

    def __init__(self) -> None:
        self.count = 0
        self._heap: list[tuple[float, int, Chain]] = []

    def add(self, chain: "Chain") -> None:
        self.count += 1
        item = (chain.waited, -self.count, chain)
        if len(self._heap) < _MOST_CHAINS:
            heapq.heappush(self._heap, item)
        else:
            heapq.heappushpop(self._heap, item)

    def chains(self) -> "list[Chain]":
        return [
            chain for _, _, chain in sorted(self._heap, key=lambda item: item[:2], reverse=True)
        ]
