"""The order in which a scenario is made smaller: from coarse parts to fine ones.

    document --LEVELS--> parts to leave out, or numbers to lower, of one level at a time

Some things are never left out, as without them the scenario would answer another question: the
autoscalers that are started, the groups' bounds, and the resources of their machines. Fields
without which the API server refuses an object stay, too. The prices of all groups are left out
together or not at all, as an autoscaler compares them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from kwok_operator.constants import KIND, POOL_KIND
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.formats.yamltext import Path, in_words
from kwok_operator.rehearsal.shrinking.parts import (
    PODS_OF,
    Amount,
    Doc,
    Part,
    amounts_of_nodes,
    amounts_of_pods,
    applied,
    at,
    places,
    title,
)

_WITH_OTHERS: Final = frozenset({POOL_KIND, "Namespace", "PriorityClass", "RuntimeClass"})
"""Kinds of objects that are left out with the objects that use them."""
_DEPTHS: Final = 14
"""How many levels deep the fields of objects are tried."""

Kept = Callable[[Path], bool]


@dataclass(frozen=True, slots=True)
class ShrinkLevel:
    """Parts that are left out together, or numbers that are lowered together."""

    description: str
    parts: Callable[[Doc], Sequence[Part]] = lambda doc: ()
    amounts: Callable[[Doc], Sequence[Amount]] = lambda doc: ()


def _object(path: Path, made: Doc) -> Part:
    return Part(title(made), (path[:-1],))


def _workloads(doc: Doc) -> list[Part]:
    objects = [_object(path, made) for path, made in applied(doc) if made.get("kind") in PODS_OF]
    own = enumerate(as_list(doc.get("workloads")))
    return [*objects, *(Part(f"the workload {w.get('name')}", (("workloads", n),)) for n, w in own)]


def _groups(doc: Doc) -> list[Part]:
    return [_object(path, made) for path, made in applied(doc) if made.get("kind") == KIND]


def _others(doc: Doc) -> list[Part]:
    objects = [
        _object(path, made)
        for path, made in applied(doc)
        if made.get("kind") not in PODS_OF | {KIND}
        and (made.get("kind") not in _WITH_OTHERS or made.get("globalDefault"))
    ]
    priced = tuple(
        (*path, "spec", "price")
        for path, made in applied(doc)
        if made.get("kind") == KIND and "price" in as_map(made.get("spec"))
    )
    return [*objects, *([Part("the prices of all groups", priced)] if priced else [])]


def _steps(doc: Doc) -> list[Part]:
    steps = enumerate(as_list(doc.get("timeline")))
    parts = [Part(f"the step timeline[{n}]", (("timeline", n),)) for n, _ in steps]
    for number, process in enumerate(as_list(doc.get("processes"))):
        if "command" in process:
            acts = tuple(
                ("timeline", n)
                for n, step in enumerate(as_list(doc.get("timeline")))
                if process.get("name") in (step.get("start"), step.get("stop"))
            )
            description = f"the process {process.get('name')}"
            parts.append(Part(description, (("processes", number), *acts)))
    return parts


def _placement(doc: Doc) -> list[Part]:
    placement = as_map(doc.get("placement"))
    pods = [
        Part(f"the places of {each.get('what')}", (("placement", "pods", n),))
        for n, each in enumerate(as_list(placement.get("pods")))
    ]
    nodes = as_map(placement.get("nodes"))
    return [
        *pods,
        *(Part(f"what keeps pods off {n}", (("placement", "nodes", n),)) for n in nodes),
    ]


def _kept_of_pods(made: Doc, path: Path) -> bool:
    """Whether the field at `path` must stay in an object that is a pod, or creates pods."""
    if made.get("kind") == "Pod":
        return _kept_of_template(path, frozenset()) or path == ("spec", "nodeName")
    match path:
        case () | ("apiVersion",) | ("kind",) | ("metadata",) | ("spec",):
            return True
        case ("metadata", "name" | "namespace") | ("spec", "selector", *_):
            return True
        case ("spec", "replicas" | "parallelism" | "completions" | "serviceName" | "template"):
            return True
        case ("spec", "template", *rest):
            selector = as_map(as_map(made["spec"]).get("selector"))
            own = frozenset(as_map(selector.get("matchLabels", selector)))
            return _kept_of_template(tuple(rest), own)
    return False


def _kept_of_template(path: Path, selected: frozenset[str]) -> bool:
    match path:
        case () | ("apiVersion",) | ("kind",) | ("metadata",) | ("spec",):
            return True
        case ("metadata", "name" | "namespace"):
            return True
        case ("metadata", "labels"):
            return bool(selected)
        case ("metadata", "labels", key):
            return key in selected
        case ("spec", "containers" | "restartPolicy") | ("spec", "containers", 0):
            return True
        case ("spec", "containers" | "initContainers", _, "name" | "image"):
            return True
    return False


def _kept_of_group(_: Doc, path: Path) -> bool:
    match path:
        case () | ("apiVersion",) | ("kind",) | ("metadata",) | ("spec",):
            return True
        case ("metadata", "name") | ("spec", "targetSize" | "autoscaling" | "price", *_):
            return True
        case ("spec", "template", *rest):
            labels = rest[-2:-1] == ["labels"] or rest[-1:] == ["labels"]
            taints = rest[-2:-1] == ["taints"] or rest[-1:] == ["taints"]
            return not (labels or taints or "cloud" in rest)
    return False


def _kept_of_others(_: Doc, path: Path) -> bool:
    match path:
        case () | ("apiVersion",) | ("kind",) | ("metadata",) | ("spec",):
            return True
        case ("metadata", "name" | "namespace") | ("spec", "selector", *_):
            return True
    return len(path) == 1


def _kept_of_workload(path: Path) -> bool:
    match path:
        case () | ("name" | "kind" | "count" | "each" | "pods",) | ("pods", "template"):
            return True
        case ("pods", "template", *rest):
            return _kept_of_template(tuple(rest), frozenset())
    return False


def _kept_of_process(path: Path) -> bool:
    match path:
        case ("clusterAutoscaler", "flags" | "apiTrouble", *_) | ("env", *_):
            return False
    return True


def _roots(doc: Doc, of_pods: bool) -> Iterator[tuple[Path, Kept]]:
    for path, made in applied(doc):
        if (made.get("kind") in PODS_OF) == of_pods:
            kind = _kept_of_group if made.get("kind") == KIND else _kept_of_others
            yield path, _of(_kept_of_pods if of_pods else kind, made)
    if of_pods:
        for number, _ in enumerate(as_list(doc.get("workloads"))):
            yield ("workloads", number), _kept_of_workload


def _of(kept: Callable[[Doc, Path], bool], made: Doc) -> Kept:
    return lambda path: kept(made, path)


def _flags(doc: Doc) -> Iterator[tuple[Path, Kept]]:
    for number, _ in enumerate(as_list(doc.get("processes"))):
        yield ("processes", number), _kept_of_process
    yield ("cluster", "flags", "kwok-operator"), lambda path: not path


def _fields(
    roots: Callable[[Doc], Iterator[tuple[Path, Kept]]], depth: int
) -> Callable[[Doc], list[Part]]:
    """Returns a function that lists the fields of a document that can be left out, at one depth
    below the `roots`: depth 0 are the fields of the roots themselves.
    """

    def parts(doc: Doc) -> list[Part]:
        fields: list[Part] = []
        for path, kept in roots(doc):
            for some in islice(places(at(doc, path), path, kept), depth, depth + 1):
                fields += [Part(_named(doc, path, place), (place,)) for place in some]
        return fields

    return parts


def _named(doc: Doc, root: Path, place: Path) -> str:
    made: Any = at(doc, root)
    whose = title(made) if root[:1] == ("apply",) else str(as_map(made).get("name", root[-1]))
    return f"{in_words(place[len(root) :])} of {whose}"


def _deep(
    description: str, roots: Callable[[Doc], Iterator[tuple[Path, Kept]]]
) -> list[ShrinkLevel]:
    return [ShrinkLevel(description, parts=_fields(roots, depth)) for depth in range(_DEPTHS)]


LEVELS: Final[Sequence[ShrinkLevel]] = (
    ShrinkLevel("workloads", parts=_workloads),
    ShrinkLevel("pods", amounts=amounts_of_pods),
    ShrinkLevel("groups", parts=_groups),
    ShrinkLevel("other objects", parts=_others),
    ShrinkLevel("steps and programs", parts=_steps),
    ShrinkLevel("nodes", amounts=amounts_of_nodes),
    ShrinkLevel("places of pods", parts=_placement),
    *_deep("constraints of pods", lambda doc: _roots(doc, of_pods=True)),
    *_deep("fields of groups and others", lambda doc: _roots(doc, of_pods=False)),
    *_deep("flags", _flags),
)
