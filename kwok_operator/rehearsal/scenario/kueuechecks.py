"""Checks Kueue of a scenario: its program, manifests and Configuration, before anything starts.

Its objects are checked with all others that are applied (applied.py). What is in the manifests is
checked when Kueue is started (rehearsal/kueue/setup.py): they have 30,000 lines.
"""

from collections.abc import Iterator

from kwok_operator.formats.words import shown
from kwok_operator.formats.yamltext import Path
from kwok_operator.rehearsal.kueue.setup import GROUP, KueueSetupError, configuration_in
from kwok_operator.rehearsal.scenario.kueue import KUEUE_MODULE, MANIFESTS, Kueue
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.problems import problem
from kwok_operator.rehearsal.scenario.surroundings import Surroundings, UnusableReferenceError
from kwok_operator.schema.check import FieldProblem

_SCRIPT = b"#!"


def kueue_checks(scenario: Scenario, around: Surroundings) -> Iterator[FieldProblem]:
    for number, wanted in scenario.kueues.items():
        path: Path = ("processes", number, "kueue")
        if number != min(scenario.kueues):
            yield problem(path, "there is one already, and both would queue all Jobs; remove one")
        if not around.own_cluster:
            # Its webhooks would also hold up the Jobs of others.
            sentence = "has webhooks on this machine, which another cluster's API server doesn't"
            yield problem(path, f"{sentence} reach; leave --kubeconfig out")
        program = around.executable(wanted.binary)
        if program and not program.startswith(_SCRIPT) and KUEUE_MODULE.encode() not in program:
            sentence = "is no Kueue; build cmd/kueue of kubernetes-sigs/kueue, and name that"
            yield problem((*path, "binary"), f"{shown(wanted.binary)} {sentence}")
        yield from _files(wanted, path, around)


def _files(wanted: Kueue, path: Path, around: Surroundings) -> Iterator[FieldProblem]:
    if wanted.configuration is not None:
        try:
            configuration_in(around.text(wanted.configuration), where=wanted.configuration)
        except (UnusableReferenceError, KueueSetupError) as error:
            yield problem((*path, "configuration"), f"{shown(wanted.configuration)} {error}")
    manifests = wanted.manifests or around.beside(wanted.binary, MANIFESTS)
    if manifests is None:
        return
    hint = "" if wanted.manifests else "; they are sought there: manifests names others"
    try:
        material = around.material(manifests)
    except UnusableReferenceError as error:
        yield problem((*path, "manifests"), f"{shown(manifests)} {error}{hint}")
        return
    if material.complete and not any(GROUP in text for _, text in material.texts):
        sentence = f"has nothing of {GROUP}; name the manifests of a release of Kueue"
        yield problem((*path, "manifests"), f"{shown(manifests)} {sentence}")
