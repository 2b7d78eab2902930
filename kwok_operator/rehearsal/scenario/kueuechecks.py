"""Checks Kueue of a scenario: its program, manifests and Configuration, before anything starts.

Objects that the scenario applies for Kueue are checked with all other applied objects (applied.py).
Manifests that a kustomization generates are checked only when Kueue is started.
"""

from collections.abc import Iterator

from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.words import shown
from kwok_operator.formats.yamltext import Path
from kwok_operator.offline.files import Files
from kwok_operator.rehearsal.kueue.setup import (
    REMEDY,
    KueueSetupError,
    configuration_in,
    set_up,
    unknown_field,
)
from kwok_operator.rehearsal.scenario.kueue import KUEUE_MODULE, MANIFESTS, Kueue
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.problems import problem
from kwok_operator.rehearsal.scenario.surroundings import Surroundings, UnusableReferenceError
from kwok_operator.schema.check import FieldProblem

_SCRIPT = b"#!"
_MANAGER = f"{KUEUE_MODULE}/pkg/webhooks".encode()
"""The package that only its manager has."""


def kueue_checks(
    scenario: Scenario, around: Surroundings, unchecked: list[str]
) -> Iterator[FieldProblem]:
    """Yields the problems with Kueue; appends to `unchecked` what can't be checked."""
    for number, wanted in scenario.kueues.items():
        path: Path = ("processes", number, "kueue")
        if number != min(scenario.kueues):
            yield problem(path, "there is one already, and both would queue all Jobs; remove one")
        if not around.own_cluster:
            # Its webhooks would also hold up the Jobs of others.
            sentence = "has webhooks on this machine, which another cluster's API server doesn't"
            yield problem(path, f"{sentence} reach; leave --kubeconfig out")
        program = around.executable(wanted.binary)
        if program.startswith(_SCRIPT):
            program = b""
        if program and _MANAGER not in program:
            sentence = "is no Kueue; build cmd/kueue of kubernetes-sigs/kueue, and name that"
            yield problem((*path, "binary"), f"{shown(wanted.binary)} {sentence}")
            program = b""
        yield from _files(wanted, path, around, program, unchecked)


def _files(
    wanted: Kueue, path: Path, around: Surroundings, program: bytes, unchecked: list[str]
) -> Iterator[FieldProblem]:
    own: Manifest | None = None
    if wanted.configuration is not None:
        try:
            own = configuration_in(around.text(wanted.configuration), where=wanted.configuration)
        except (UnusableReferenceError, KueueSetupError) as error:
            yield problem((*path, "configuration"), f"{shown(wanted.configuration)} {error}")
            return
    manifests = wanted.manifests or around.beside(wanted.binary, MANIFESTS)
    if manifests is None:
        return
    path, name = (*path, "manifests"), shown(manifests)
    try:
        material = around.material(manifests)
    except UnusableReferenceError as error:
        hint = "" if wanted.manifests else "; they are sought there: manifests names others"
        yield problem(path, f"{name} {error}{hint}")
        return
    files = Files.read(material.texts)
    for wrong in files.findings[:1]:
        yield problem(path, f"{name} can't be used: {wrong}; {REMEDY}")
    if not material.complete:
        unchecked.append(f"Kueue's manifests, {name}: as they are large, or a kustomization's")
    elif not files.findings:
        values = [each.value for each in (*files.configmaps, *files.others)]
        try:
            crds = set_up(values, own).crds
        except KueueSetupError as error:
            yield problem(path, f"{name} {error}")
            return
        if program and (field := unknown_field(crds, program)):
            sentence = f"are of another version than this Kueue, which has no {field}"
            yield problem(path, f"{name} {sentence}; name those of its version")
