"""Changes the cluster as a scenario says: applies, scales, patches, deletes objects; cordons nodes.

Each step uses kubectl, as people would, so whatever a scenario does can be done by hand.
"""

import json
import re
import shlex
import time
from collections.abc import Sequence
from typing import Any, Final

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.errors import KwokOperatorError, one_line
from kwok_operator.formats.manifests import as_stream
from kwok_operator.rehearsal.judge.recording import NodeState
from kwok_operator.rehearsal.kubectl import CommandError, run
from kwok_operator.rehearsal.scenario.linepattern import LinePattern
from kwok_operator.rehearsal.scenario.timeline import (
    ApplySource,
    NodesStep,
    PatchStep,
    RunStep,
    Step,
)
from kwok_operator.rehearsal.surroundings import is_kustomization
from kwok_operator.rehearsal.testbed import Testbed

_APPLY: Final = ("apply", "--server-side", "--force-conflicts", "--field-manager=rehearsal")
_APPLY_WITHIN: Final = 600.0
"""The time limit of `kubectl apply` in seconds: an imported cluster has thousands of objects."""
_MOST_AT_ONCE: Final = 200
_MOST_LINES: Final = 15
_LONGEST_LINE: Final = 160
_WITH_DIGITS: Final = re.compile(r"\S*\d\S*")
_WORTH_SHOWING: Final = 2.0
"""Commands that took longer than this, in seconds, are shown with their time."""


class UnexpectedOutputError(KwokOperatorError):
    """A command has not printed what its step requires."""


async def apply(testbed: Testbed, sources: Sequence[ApplySource]) -> None:
    """Applies files, folders and objects, in their order. Raises KwokOperatorError."""
    if testbed.borrowed is not None:
        await _apply_objects(testbed, await testbed.borrowed.objects_of(sources))
        return
    objects: list[dict[str, Any]] = []
    for source in sources:
        if source.object is not None:
            objects.append(source.object)
            continue
        await _apply_objects(testbed, objects)
        objects = []
        path = testbed.folder / (source.path or "")
        flag = "--kustomize" if is_kustomization(path) else "--filename"
        await testbed.kubectl(*_APPLY, f"{flag}={path}", within=_APPLY_WITHIN)
    await _apply_objects(testbed, objects)


async def _apply_objects(testbed: Testbed, objects: Sequence[dict[str, Any]]) -> None:
    if objects:
        text = as_stream(objects)
        await testbed.kubectl(*_APPLY, "--filename=-", stdin=text, within=_APPLY_WITHIN)


async def perform(testbed: Testbed, step: Step, nodes: dict[str, NodeState]) -> str:
    """Performs a step, and returns in words what was done. `nodes` are the nodes that exist.

    Raises CommandError or ProgramError, and UnexpectedOutputError for a `run` step.
    """
    match step:
        case Step(apply=sources) if sources is not None:
            await apply(testbed, sources)
            return f"applied {len(sources)}"
        case Step(scale=scale) if scale is not None:
            await testbed.kubectl(
                "scale", scale.what, f"--replicas={scale.replicas}", f"-n={scale.namespace}"
            )
            return f"{scale.what} to {scale.replicas}"
        case Step(patch=patch) if patch is not None:
            await _patch(testbed, patch)
            return patch.what
        case Step(delete=gone) if gone is not None:
            await testbed.kubectl("delete", gone.what, f"-n={gone.namespace}", "--wait=false")
            return gone.what
        case Step(cordon=some) if some is not None:
            return await _cordon(testbed, "cordon", some, nodes)
        case Step(uncordon=some) if some is not None:
            return await _cordon(testbed, "uncordon", some, nodes)
        case Step(run=command) if command is not None:
            await _run(testbed, command)
            return " ".join(command.command)
        case Step(stop=name) if name is not None:
            await testbed.stop(name)
            return name
    raise AssertionError(step)


async def _run(testbed: Testbed, step: RunStep) -> None:
    """Runs a command. Raises UnexpectedOutputError if no line of its output matches `prints`, even
    if the step allows the command to fail.
    """
    command = shlex.join(step.command)
    if step.show:
        testbed.say("")
        testbed.say(f"   $ {command}", "cyan")
    began = time.monotonic()
    ended = await run(**testbed.command(step.command, step.env), within=step.within, kept=True)
    lines = f"{ended.out}{ended.err}".splitlines()
    if step.show:
        for line in abridged(lines):
            testbed.say(f"   {line}".rstrip(), "dim")
        if (seconds := time.monotonic() - began) > _WORTH_SHOWING:
            testbed.say(f"   after {seconds:.1f} s", "green")
    if step.prints is not None and not any(map(LinePattern(step.prints).is_in, lines)):
        last = one_line(lines[-1], limit=300) if lines else "nothing"
        raise UnexpectedOutputError(
            f"{command}: no line of its output has {step.prints!r}; the last is: {last}"
        )
    ended.check()


def abridged(lines: Sequence[str]) -> list[str]:
    """Returns a short output unchanged. In a long one, lines that differ only in words with digits
    are shown once.
    """
    kinds: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        kind = _WITH_DIGITS.sub("", line) if len(lines) > _MOST_LINES else str(number)
        kinds.setdefault(kind, []).append(line)
    shown = []
    for first, *more in kinds.values():
        shown.append(shorten(first))
        if more:
            shown.append(f"  (and {len(more)} more like it)")
    return shown


def shorten(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."


async def _patch(testbed: Testbed, patch: PatchStep) -> None:
    await testbed.kubectl(
        "patch", patch.what, f"-n={patch.namespace}", "--type=merge",
        f"--patch={json.dumps(patch.patch)}",
    )  # fmt: skip


async def _cordon(testbed: Testbed, verb: str, some: NodesStep, nodes: dict[str, NodeState]) -> str:
    if some.group is not None:
        names = sorted(name for name, node in nodes.items() if node.group == some.group)
    else:
        # Real nodes of the cluster must be left alone.
        of_groups = f",{NODE_GROUP_LABEL}" if testbed.borrowed is not None else ""
        selector = f"--selector={some.selector}{of_groups}"
        output = await testbed.kubectl("get", "nodes", selector, "-o=name")
        names = sorted(name.removeprefix("node/") for name in output.split())
    if not names:
        which = f"of the group {some.group}" if some.group else f"with the labels {some.selector}"
        raise CommandError(f"no node {which} is there; let the step come later, or name others")
    names = names[: some.count]
    for first in range(0, len(names), _MOST_AT_ONCE):
        await testbed.kubectl(verb, *names[first : first + _MOST_AT_ONCE])
    return f"{len(names)} nodes"
