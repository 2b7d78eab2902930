"""The parts of a scenario that can be left out, and the numbers in it that can be lowered.

    document, Parts to leave out        --without-->       a smaller document
    document, Amounts with new numbers  --with_numbers-->  a smaller document

A document is a scenario as YAML, which contains all objects that it applies. levels.py decides the
order in which parts are tried. When a part is left out, namespaces, classes and pools that only
this part used are left out, too: see `tidied`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.constants import KIND, POOL_KIND
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.formats.yamltext import Path

Doc = dict[str, Any]

PODS_OF: Final = frozenset(
    """Deployment StatefulSet DaemonSet ReplicaSet ReplicationController Job CronJob Pod""".split()
)
"""Kinds of objects that are or create pods."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part to leave out: all of its paths in the document, and its description."""

    description: str
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Amount:
    """A number to lower, and its description. `least` is the lowest value that makes sense. At each
    of the paths, the document has the number multiplied by `step`.
    """

    description: str
    paths: tuple[Path, ...]
    value: int
    least: int
    step: int = 1


def at(value: Any, path: Path) -> Any:
    """Returns the value at a path; None if there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def without(doc: Doc, parts: Iterable[Part]) -> Doc:
    """Returns the document without these parts, without objects that nothing uses then, and without
    steps about objects that are gone.
    """
    gone = frozenset(path for part in parts for path in part.paths)
    kept: Doc = _without(doc, gone, ())
    if lost := _named(doc) - _named(kept):
        steps = [each for each in as_list(kept.get("timeline")) if not lost & _about(each)]
        kept = {**kept, **({"timeline": steps} if "timeline" in kept else {})}
    return tidied(kept)


def _named(doc: Doc) -> set[tuple[str, str]]:
    """Returns what steps may be about, as (namespace, name); processes as ("process", name)."""
    names = {(space or "default", name) for _, space, name in map(identity, every_object(doc))}
    for each in as_list(doc.get("workloads")):
        names.add((str(each.get("namespace", "default")), str(each.get("name"))))
    return names | {("process", str(each.get("name"))) for each in as_list(doc.get("processes"))}


def _about(step: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Returns what a step is about, or waits for: namespace and name, as `_named` does."""
    subjects = {("process", str(step.get(act))) for act in ("start", "stop")}
    of = as_map(as_map(step.get("after")).get("of"))
    for target in (of, *map(as_map, step.values())):
        namespace = str(target.get("namespace", "default"))
        names = [str(target.get(key, "")) for key in ("what", "workload")]
        subjects |= {(namespace, name.rpartition("/")[2]) for name in names if name}
        # Groups and pools are in no namespace.
        subjects |= {("default", str(target[key])) for key in ("group", "pool") if key in target}
    return subjects


def _without(value: Any, gone: frozenset[Path], here: Path) -> Any:
    if isinstance(value, dict):
        return {
            k: _without(v, gone, (*here, k)) for k, v in value.items() if (*here, k) not in gone
        }
    if isinstance(value, list):
        return [
            _without(v, gone, (*here, n)) for n, v in enumerate(value) if (*here, n) not in gone
        ]
    return value


def with_numbers(doc: Doc, amounts: Mapping[Amount, int]) -> Doc:
    """Returns the document with these numbers, and a placement without the pods and nodes that no
    longer exist.
    """
    new = {path: n * amount.step for amount, n in amounts.items() for path in amount.paths}
    changed: Doc = _with(doc, new, ())
    return tidied(changed)


def _with(value: Any, new: Mapping[Path, int], here: Path) -> Any:
    if here in new:
        return new[here]
    if isinstance(value, dict):
        return {k: _with(v, new, (*here, k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_with(v, new, (*here, n)) for n, v in enumerate(value)]
    return value


def applied(doc: Doc) -> list[tuple[Path, Doc]]:
    """Returns the objects that exist at the beginning, each with its path."""
    return [
        (("apply", n, "object"), each["object"]) for n, each in enumerate(as_list(doc.get("apply")))
    ]


def every_object(doc: Doc) -> Iterator[Doc]:
    """Yields all objects that are applied, also by steps."""
    steps = [as_map(step).get("apply") for step in as_list(doc.get("timeline"))]
    for source in (doc.get("apply"), *steps):
        yield from (as_map(each)["object"] for each in as_list(source) if "object" in as_map(each))


def identity(made: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns kind, namespace and name of an object, which identify it."""
    metadata = as_map(made.get("metadata"))
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    return str(made.get("kind", "")), namespace, name


def title(made: Mapping[str, Any]) -> str:
    kind, namespace, name = identity(made)
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def tidied(doc: Doc) -> Doc:
    """Returns the document without namespaces, classes and pools that nothing in it uses, and
    without placements of pods and nodes that don't exist.
    """
    for kind, used in _USED.items():
        names = set(used(doc))
        unused = frozenset(
            path[:-1]
            for path, made in applied(doc)
            if made.get("kind") == kind
            and identity(made)[2] not in names
            and not made.get("globalDefault")
        )
        if unused:
            doc = _without(doc, unused, ())
    if isinstance(doc.get("placement"), dict):
        doc = _placed(doc)
    return {key: value for key, value in doc.items() if value not in ([], None)}


def _texts(value: Any, *keys: str) -> Iterator[str]:
    """Yields all texts anywhere under these keys, alone or in lists."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key in keys:
                yield from (str(each) for each in (part if isinstance(part, list) else [part]))
            yield from _texts(part, *keys)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, *keys)


def _namespaces(doc: Doc) -> Iterator[str]:
    others = [made for made in every_object(doc) if made.get("kind") != "Namespace"]
    yield from _texts([others, doc.get("workloads"), doc.get("timeline")], "namespace")


def _pools(doc: Doc) -> Iterator[str]:
    yield from _texts(list(every_object(doc)), "capacityPools")
    yield from _texts(doc.get("timeline"), "pool")


_USED: Final[Mapping[str, Callable[[Doc], Iterator[str]]]] = {
    POOL_KIND: _pools,
    "PriorityClass": lambda doc: _texts(doc, "priorityClassName", "priorityClass"),
    "RuntimeClass": lambda doc: _texts(doc, "runtimeClassName"),
    "Namespace": _namespaces,
}
"""By kind, a function that yields the names of the needed objects of this kind."""


def _placed(doc: Doc) -> Doc:
    """Removes pods and nodes that don't exist from the placement."""
    placement = doc["placement"]
    applied_objects = {identity(each): each for _, each in applied(doc)}
    sizes = {name: _size(each) for (kind, _, name), each in applied_objects.items() if kind == KIND}

    def is_there(node: str) -> bool:
        group, _, number = node.rpartition("/")
        return int(number) < sizes.get(group, 0)

    pods = []
    for each in as_list(placement.get("pods")):
        kind, _, name = str(each.get("what", "")).partition("/")
        namespace = each.get("namespace", "default")
        owner = next(
            (one for (k, ns, n), one in applied_objects.items()
             if (k.lower(), ns or "default", n) == (kind, namespace, name)),
            None,
        )  # fmt: skip
        if owner is None:
            continue
        left = _replicas(owner)
        on: dict[str, int] = {}
        for node, count in as_map(each.get("on")).items():
            if is_there(node) and (some := min(count, left)) > 0:
                on[node] = some
                left -= some
        ordinals = {
            number: node
            for number, node in as_map(each.get("ordinals")).items()
            if is_there(node) and 0 <= int(number) - _first_ordinal(owner) < _replicas(owner)
        }
        kept = {key: part for key, part in each.items() if key not in ("on", "ordinals", "pending")}
        kept |= {key: part for key, part in (("on", on), ("ordinals", ordinals)) if part}
        if on or ordinals:
            pods.append(kept)
    nodes = {n: part for n, part in as_map(placement.get("nodes")).items() if is_there(n)}
    left_over = {key: part for key, part in (("nodes", nodes), ("pods", pods)) if part}
    others = {k: v for k, v in placement.items() if k not in ("nodes", "pods")}
    return {**doc, "placement": {**others, **left_over} if left_over else None}


def _size(group: Mapping[str, Any]) -> int:
    spec = as_map(group.get("spec"))
    least = as_map(spec.get("autoscaling")).get("minSize")
    return max(_whole(spec.get("targetSize"), 0), _whole(least, 0))


def _replicas(owner: Mapping[str, Any]) -> int:
    """Returns how many pods an object may have; for a DaemonSet, practically any number."""
    spec = as_map(owner.get("spec"))
    if owner.get("kind") == "DaemonSet":
        return 1 << 30
    return _whole(spec.get("replicas"), _whole(spec.get("parallelism"), 1))


def _first_ordinal(owner: Mapping[str, Any]) -> int:
    return _whole(as_map(as_map(owner.get("spec")).get("ordinals")).get("start"), 0)


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def amounts_of_pods(doc: Doc) -> list[Amount]:
    """Returns the numbers of pods: of each object that creates pods, and of each workload."""
    amounts = []
    for path, made in applied(doc):
        names = ("parallelism", "completions") if made.get("kind") == "Job" else ("replicas",)
        spec = as_map(made.get("spec"))
        paths = tuple((*path, "spec", name) for name in names if isinstance(spec.get(name), int))
        if made.get("kind") in PODS_OF and paths and (value := at(doc, paths[0])) > 1:
            amounts.append(Amount(f"pods of {title(made)}", paths, value, 1))
    for number, each in enumerate(as_list(doc.get("workloads"))):
        size, count = each.get("each") or 1, each.get("count", 1)
        if isinstance(count, int) and isinstance(size, int) and count > size:
            place: Path = ("workloads", number, "count")
            description = f"pods of the workload {each.get('name')}"
            amounts.append(Amount(description, (place,), count // size, 1, size))
    return amounts


def amounts_of_nodes(doc: Doc) -> list[Amount]:
    """Returns the numbers of nodes that groups have at the beginning."""
    amounts = []
    for path, made in applied(doc):
        spec = as_map(made.get("spec"))
        size = spec.get("targetSize")
        if made.get("kind") != KIND or not isinstance(size, int) or size < 1:
            continue
        paths: list[Path] = [(*path, "spec", "targetSize")]
        least = as_map(spec.get("autoscaling")).get("minSize")
        if least == size:
            paths.append((*path, "spec", "autoscaling", "minSize"))
        bound = least if isinstance(least, int) and least != size else 0
        amounts.append(Amount(f"nodes of {title(made)}", tuple(paths), size, bound))
    return amounts


def places(value: Any, path: Path, kept: Callable[[Path], bool]) -> Iterator[list[Path]]:
    """Yields for each depth below `path`, from coarse to fine, the paths of the parts that can be
    left out. Skips a part for which `kept` is True, but not the parts in it.

    Also skips an only child whose parent can be left out, as that has the same effect.
    """
    above: Sequence[Path] = [path]
    while above:
        below: list[Path] = []
        named: list[Path] = []
        for place in above:
            part = at(value, place[len(path) :])
            keys: Iterable[Any] = ()
            if isinstance(part, dict):
                keys = part
            elif isinstance(part, list):
                keys = range(len(part))
            children = [(*place, key) for key in keys]
            removable = [each for each in children if not kept(each[len(path) :])]
            below += children
            if len(children) > 1 or kept(place[len(path) :]):
                named += removable
        yield named
        above = below
