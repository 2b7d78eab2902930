"""Parses a provider config, the text in a ConfigMap: returns it as a value, or raises all of its
problems.

It accepts every form that cluster-autoscaler's provider or its documentation has had, and refuses
keys that the provider silently ignores.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from kwok_operator.api.base import LABEL_NAME, is_label_key
from kwok_operator.constants import HOSTNAME_LABEL
from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.words import Problem, names_in_words, nearest
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.nodegroups.api.autoscaling import MAX_GPU_TYPES
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.sources.api.providerconfig import (
    DEFAULT_TEMPLATES_KEY,
    ORIGINAL_TEMPLATES_KEY,
    KeyKind,
    ProviderConfig,
    ReadNodesFrom,
)
from kwok_operator.sources.api.source import RemoteCluster

API_VERSION: Final = "v1alpha1"
_GPU_KEYS: Final = ("gpuLabelKey", "availableGPUTypes")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        *("apiVersion", "readNodesFrom", "nodegroups", "nodes", "configmap", "kwok", "prune"),
        *("cluster", "gpuConfig", *_GPU_KEYS),
    ),
    "nodegroups": ("fromNodeLabelKey", "fromNodeAnnotationKey", "fromNodeAnnotation"),
    "nodes": ("skipTaint", "keepControlPlane", "gpuConfig"),
    "nodes.gpuConfig": _GPU_KEYS,
    "cluster": ("secretName", "key", "copySizes"),
    "configmap": ("name", "key"),
}
_NO_PLACE_FOR: Final = frozenset({"gpuConfig", *_GPU_KEYS})
"""Keys that are accepted at the top level, because a widespread sample has them there, but are
never suggested."""

_GPU_TYPE = re.compile(LABEL_NAME)
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_MAX_NAME: Final = 253

KWOK_NOTE: Final = "kwok: has no effect; the kwok controller is installed and run apart"


class ProviderConfigError(ManifestError):
    """All problems of a provider config; `fields` has the path of each, empty for the whole
    config.
    """

    def __init__(
        self, *, where: str, problems: tuple[Problem, ...], fields: tuple[str, ...]
    ) -> None:
        self.problems = problems
        self.fields = fields
        super().__init__(f"{where}: " + "; ".join(problem.message for problem in problems))


def read_config(text: str, *, where: str) -> ProviderConfig:
    """Parses the text under the data key `config`; raises ProviderConfigError."""
    try:
        documents = [d for d in load_documents(text, where=where) if d is not None]
    except ManifestError as error:
        problem = Problem("InvalidYAML", str(error))
        raise ProviderConfigError(where=where, problems=(problem,), fields=("",)) from error
    if len(documents) == 1:
        return config_of(documents[0], where=where)
    count = f"has {len(documents)} documents, and must be one" if documents else "is empty"
    raise _not_a_config(f"{count}; it begins with apiVersion: {API_VERSION}", where=where)


def config_of(value: object, *, where: str) -> ProviderConfig:
    """Checks a config that has been decoded from YAML; raises ProviderConfigError."""
    if isinstance(value, dict):
        return _Reader(value).read(where=where)
    raise _not_a_config(
        f"is no object of keys and values; it begins with apiVersion: {API_VERSION}", where=where
    )


def _not_a_config(problem: str, *, where: str) -> ProviderConfigError:
    problems = (Problem("InvalidYAML", f"{where}: {problem}"),)
    return ProviderConfigError(where=where, problems=problems, fields=("",))


def templates_key(config: ProviderConfig, keys_present: Collection[str]) -> str:
    """Returns the key of the templates ConfigMap under which the Nodes are.

    It is the key that the config names (or its default), if the ConfigMap has it, or else the key
    that cluster-autoscaler reads. Raises ManifestError if the ConfigMap has neither.
    """
    for key in (config.configmap_key or DEFAULT_TEMPLATES_KEY, ORIGINAL_TEMPLATES_KEY):
        if key in keys_present:
            return key
    wanted = config.configmap_key or f"{DEFAULT_TEMPLATES_KEY} or {ORIGINAL_TEMPLATES_KEY}"
    there = f"it has {names_in_words(sorted(keys_present))}" if keys_present else "it is empty"
    raise ManifestError(
        f"ConfigMap {config.configmap_name}: has no key {wanted}, {there}; put the Nodes there, or"
        " name their key in configmap.key of the provider config"
    )


class _Reader:
    """Reads one config. Every method continues after a mistake, so that all mistakes are
    reported."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._problems: list[tuple[str, Problem]] = []
        self._meant: set[str] = set()

    def read(self, *, where: str) -> ProviderConfig:
        root = self._root
        self._check_keys(root, "")
        nodes = self._section(root, "nodes")
        self._api_version()
        source = self._read_nodes_from()
        kind, key = self._group_key(self._section(root, "nodegroups"))
        gpu_label, gpu_types, gpu_notes = self._gpu(nodes)
        name, data_key = self._configmap(self._section(root, "configmap"), source)
        there = self._section(root, "cluster")
        secret, secret_key = self._cluster(there, source)
        copy_sizes = self._boolean(there, "copySizes", at="cluster.")
        self._section(root, "kwok")
        skip_taint = self._boolean(nodes, "skipTaint", at="nodes.")
        keep = self._boolean(nodes, "keepControlPlane", at="nodes.")
        prune = self._boolean(root, "prune", at="")
        if self._problems:
            fields, problems = zip(*self._problems, strict=True)
            raise ProviderConfigError(where=where, problems=problems, fields=fields)
        return ProviderConfig(
            read_nodes_from=ReadNodesFrom(source),
            key_kind=kind,
            group_key=key,
            skip_taint=skip_taint,
            keep_control_plane=None if nodes.get("keepControlPlane") is None else keep,
            gpu_label_key=gpu_label,
            gpu_types=gpu_types,
            configmap_name=name,
            configmap_key=data_key,
            cluster=RemoteCluster(secret_name=secret, key=secret_key) if secret else None,
            copy_sizes=copy_sizes,
            prune=prune,
            notes=((KWOK_NOTE,) if root.get("kwok") is not None else ()) + gpu_notes,
        )

    def _problem(self, reason: str, field: str, problem: str) -> None:
        message = one_line(f"{field}: {problem}", limit=800)
        self._problems.append((field, Problem(reason, message)))

    def _missing(self, field: str, problem: str) -> None:
        # If the key is misspelt, that was reported; that the right key is missing needs no report.
        if field.rpartition(".")[2] not in self._meant:
            self._problem("MissingKey", field, problem)

    def _section(self, parent: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = parent.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._invalid(key, value, "must be an object of keys and values")
            self._meant.update(_KEYS.get(key, ()))
            return {}
        if key != "kwok":
            self._check_keys(value, key)
        return value

    def _invalid(self, field: str, value: object, problem: str) -> None:
        self._problem("InvalidValue", field, f"{one_line(repr(value), limit=200)} {problem}")

    def _check_keys(self, section: Mapping[str, Any], name: str) -> None:
        for key in section:
            if key not in _KEYS[name]:
                field = f"{name}.{key}" if name else key
                self._problem("UnknownKey", field, f"there is no such key{self._hint(key, name)}")

    def _hint(self, key: str, section: str) -> str:
        here = [known for known in _KEYS[section] if section or known not in _NO_PLACE_FOR]
        places = {known: name for name, keys in _KEYS.items() for known in keys if name}
        places |= {known: "" for known in _KEYS[""] if known not in _NO_PLACE_FOR}
        near = nearest(key, here)
        if near and key not in places:
            self._meant.add(near)
            return f"; did you mean {near}?"
        elsewhere = key if key in places else nearest(key, places)
        if elsewhere is None:
            return f"; known here: {', '.join(here)}"
        self._meant.add(elsewhere)
        place = places[elsewhere]
        return f"; write {place}.{elsewhere}" if place else f"; {elsewhere} stands at the top level"

    def _api_version(self) -> None:
        value = self._root.get("apiVersion")
        if value is None:
            self._missing("apiVersion", f"is missing; write apiVersion: {API_VERSION}")
        elif value != API_VERSION:
            self._invalid("apiVersion", value, f"is not known; write apiVersion: {API_VERSION}")

    def _read_nodes_from(self) -> str:
        value, choices = self._root.get("readNodesFrom"), [str(source) for source in ReadNodesFrom]
        if value is None:
            self._missing("readNodesFrom", f"is missing; it is one of {', '.join(choices)}")
        elif value not in choices:
            near = nearest(value, choices) if isinstance(value, str) else None
            hint = f"; did you mean {near}?" if near else ""
            self._invalid("readNodesFrom", value, f"is none of {', '.join(choices)}{hint}")
        else:
            return str(value)
        return ""

    def _group_key(self, section: Mapping[str, Any]) -> tuple[KeyKind, str]:
        label = self._key(section, "fromNodeLabelKey")
        new, old = (self._key(section, k) for k in ("fromNodeAnnotationKey", "fromNodeAnnotation"))
        if new is not None and old is not None and new != old:
            self._problem(
                "BothKeys",
                "nodegroups.fromNodeAnnotation",
                f"{old!r} and fromNodeAnnotationKey {new!r} are two spellings of one key, and"
                " differ; remove fromNodeAnnotation",
            )
        annotation = old if new is None else new
        if label is not None and annotation is not None:
            written = "fromNodeAnnotation" if new is None else "fromNodeAnnotationKey"
            self._problem(
                "BothKeys",
                "nodegroups",
                f"has fromNodeLabelKey and {written}, and nodes are grouped by one of them; remove"
                " the other (the sample in cluster-autoscaler's README has both)",
            )
        elif label is None and annotation is None:
            self._missing_group_key(section)
        kind = KeyKind.ANNOTATION if label is None else KeyKind.LABEL
        return kind, label or annotation or ""

    def _missing_group_key(self, section: Mapping[str, Any]) -> None:
        given = any(section.get(key) is not None for key in _KEYS["nodegroups"])
        meant = any(key in self._meant for key in (*_KEYS["nodegroups"], "nodegroups"))
        if not given and not meant:
            self._problem(
                "MissingKey",
                "nodegroups",
                "has no key to group nodes by; give fromNodeLabelKey or fromNodeAnnotationKey, such"
                " as fromNodeLabelKey: node.kubernetes.io/instance-type",
            )

    def _key(self, section: Mapping[str, Any], name: str) -> str | None:
        field = f"nodegroups.{name}"
        key = self._text(section, name, at="nodegroups.")
        if key is None:
            return None
        if not is_label_key(key):
            self._invalid(field, key, "is not the key of a label or annotation, such as pool")
            self._meant.update(_KEYS["nodegroups"])
            return None
        if key == HOSTNAME_LABEL:
            self._problem(
                "HostnameKey",
                field,
                f"{HOSTNAME_LABEL} is different on every node, so each node would be a group of its"
                " own and cluster-autoscaler would scale them without end; group by what nodes"
                " share, such as node.kubernetes.io/instance-type",
            )
        return key

    def _gpu(self, nodes: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
        """Returns the GPU label's key, the GPU types and notes, from all fields in which sample
        configs have had them."""
        given: list[tuple[str, dict[str, Any]]] = []
        for at, parent in (("nodes.", nodes), ("", self._root)):
            value = parent.get("gpuConfig")
            if isinstance(value, dict):
                self._check_keys(value, "nodes.gpuConfig")
                given += [(f"{at}gpuConfig", value)] if value else []
            elif value is not None:
                self._invalid(f"{at}gpuConfig", value, "must be an object of keys and values")
        top = {key: self._root[key] for key in _GPU_KEYS if self._root.get(key) is not None}
        given += [("", top)] if top else []
        if not given:
            return None, (), ()
        merged: dict[str, Any] = {}
        for at, values in given:
            for key in _GPU_KEYS:
                value = values.get(key)
                if value is not None and merged.setdefault(key, value) != value:
                    field = f"{at}.{key}".lstrip(".")
                    self._problem("BothKeys", field, "is given twice, and differs; remove one")
        for key in _GPU_KEYS:
            if key not in merged:
                self._missing(
                    f"nodes.gpuConfig.{key}", f"is missing; gpuConfig has {' and '.join(_GPU_KEYS)}"
                )
        label = self._text(merged, "gpuLabelKey", at="nodes.gpuConfig.")
        if label is not None and not is_label_key(label):
            self._invalid("nodes.gpuConfig.gpuLabelKey", label, "is not the key of a label")
        return label, *self._gpu_types(merged.get("availableGPUTypes"))

    def _gpu_types(self, value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the GPU types, and notes on those that have no effect."""
        field = "nodes.gpuConfig.availableGPUTypes"
        if value is None:
            return (), ()
        if not isinstance(value, dict | list) or not all(isinstance(name, str) for name in value):
            self._invalid(field, value, "must be an object such as {nvidia-a100: {}}")
            return (), ()
        types = tuple(dict.fromkeys(name for name in value if _GPU_TYPE.fullmatch(name)))
        if len(types) > MAX_GPU_TYPES:
            self._problem(
                "InvalidValue", field, f"has {len(types)} types; at most {MAX_GPU_TYPES} are known"
            )
        odd = [one_line(repr(n), limit=80) for n in value if not _GPU_TYPE.fullmatch(n)]
        note = f"{field}: {names_in_words(odd)} can't be the value of a label: no effect"
        return types, (note,) if odd else ()

    def _configmap(self, section: Mapping[str, Any], source: str) -> tuple[str | None, str | None]:
        name, key = self._place(section, "configmap.", "name", "ConfigMap")
        needed = source in (ReadNodesFrom.CONFIGMAP, ReadNodesFrom.BOTH)
        named = self._root.get("configmap") is not None and section.get("name") is not None
        if needed and not named and "configmap" not in self._meant:
            self._missing(
                "configmap.name",
                f"is missing; with readNodesFrom: {source} it names the ConfigMap with the Nodes",
            )
        return name, key

    def _cluster(self, section: Mapping[str, Any], source: str) -> tuple[str | None, str | None]:
        name, key = self._place(section, "cluster.", "secretName", "Secret")
        if isinstance(self._root.get("cluster"), dict) and section.get("secretName") is None:
            self._missing(
                "cluster.secretName",
                "is missing; it names the Secret with the kubeconfig of the other cluster",
            )
        if section and source == ReadNodesFrom.CONFIGMAP:
            self._problem(
                "InvalidValue",
                "cluster",
                f"its nodes are not read with readNodesFrom: {source}; write readNodesFrom:"
                f" {ReadNodesFrom.CLUSTER} or {ReadNodesFrom.BOTH}, or remove it",
            )
        return name, key

    def _place(
        self, section: Mapping[str, Any], at: str, name_key: str, kind: str
    ) -> tuple[str | None, str | None]:
        """Returns the name of the object to which a section refers, and a key of its data; None for
        either that is missing."""
        name, key = self._text(section, name_key, at=at), self._text(section, "key", at=at)
        if name is not None and not is_object_name(name):
            self._invalid(f"{at}{name_key}", name, f"is not the name of a {kind}")
        if key is not None and (not _DATA_KEY.fullmatch(key) or len(key) > _MAX_NAME):
            self._invalid(f"{at}key", key, f"is not a key of a {kind}")
        return name, key

    def _text(self, section: Mapping[str, Any], key: str, *, at: str) -> str | None:
        value = section.get(key)
        if value is None or (isinstance(value, str) and value):
            return value
        problem = "is empty; remove it, or say what" if value == "" else "must be text"
        self._invalid(f"{at}{key}", value, problem)
        return None

    def _boolean(self, section: Mapping[str, Any], key: str, *, at: str) -> bool:
        value = section.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self._invalid(f"{at}{key}", value, "must be true or false, without quotes")
        return False
