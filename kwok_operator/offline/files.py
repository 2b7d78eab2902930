"""Reads the objects in files, each with the line numbers of its parts.

It recognises provider configs (in a ConfigMap or bare), other ConfigMaps, our own kinds, and Nodes.
It does not check them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.documents import NodeDocuments, nodes_of
from kwok_operator.formats.untyped import as_map, as_texts, text_at, value_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.formats.yamltext import Document, DocumentError, Path, in_words, read_with_errors
from kwok_operator.sources.providerconfig import API_VERSION

CONFIG_KEY: Final = "config"
_DEFAULT_NAME: Final = "kwok-provider-config"
_MAX_CONFIGMAP_BYTES: Final = 1024 * 1024
_WORDS_OF_A_CONFIG: Final = frozenset({"readNodesFrom", "nodegroups"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake and its place; `line` is None if it isn't known."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return one_line(f"{place}: {self.message}")


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object in a file. `config` is the provider config that it has, None without one;
    `config_document` is the text of that config if it is in a ConfigMap.
    """

    file: str
    document: Document
    prefix: Path
    value: dict[str, Any]
    config: Any = None
    config_document: Document | None = None

    @property
    def _metadata(self) -> Mapping[str, Any]:
        return as_map(self.value.get("metadata"))

    @property
    def name(self) -> str:
        """The object's name; "" if it has none, or it is no text."""
        return text_at(self._metadata, "name")

    @property
    def identity(self) -> tuple[str, str]:
        """The object's namespace and name."""
        return str(self._metadata.get("namespace") or "default"), self.name or _DEFAULT_NAME

    @property
    def label(self) -> str:
        """The object in words: `ConfigMap/name`."""
        return one_line(f"{self.value.get('kind') or 'provider config'}/{self.name}", limit=300)

    @property
    def data(self) -> dict[str, str]:
        """A ConfigMap's data, without entries that are not text."""
        return as_texts(self.value.get("data"))

    def finding(self, message: str, path: Path = ()) -> Finding:
        """Makes a finding at the line of a part, or of the nearest part around it; without a path,
        at that of the object's name."""
        if not path:
            return Finding(self.file, None, f"{self.label}: {message}")
        line = line_of(self.document, (*self.prefix, *path))
        return Finding(self.file, line, f"{_at(self.prefix)}{message}")

    def finding_in_text(self, key: str, error: ManifestError) -> Finding:
        """Makes a finding in the text under a key of a ConfigMap. The error's line counts from the
        text's beginning."""
        path = ("data", key)
        begins = self.document.blocks.get((*self.prefix, *path))
        if isinstance(error, DocumentError) and begins is not None:
            return Finding(self.file, begins + error.line - 1, f"key {key}: {error.problem}")
        return self.finding(str(error), path)

    def finding_in_config(self, message: str, config_field: str) -> Finding:
        """Makes a finding about a key of a provider config, such as nodes.skipTaint."""
        steps = tuple(config_field.split(".")) if config_field else ()
        if self.config_document is None:
            return self.finding(message, steps or ("apiVersion",))
        begins = self.document.blocks.get((*self.prefix, "data", CONFIG_KEY))
        if begins is None or not steps:
            return self.finding(message, ("data", CONFIG_KEY))
        return Finding(self.file, begins + line_of(self.config_document, steps) - 1, message)


def nodes_in_configmap(
    configmap: FoundObject, key: str
) -> tuple[NodeDocuments | None, list[Finding]]:
    """Reads the Nodes under a key of a ConfigMap. Returns them (None if there are none) and the
    findings."""
    where = f"ConfigMap {configmap.name}, key {key}"
    read, errors = read_with_errors(configmap.data[key], where=where)
    findings = [configmap.finding_in_text(key, each) for each in errors]
    if errors and not read:
        return None, findings
    try:
        documents = nodes_of([document.value for document in read], where=where)
    except ManifestError as error:
        return None, [*findings, configmap.finding_in_text(key, error)]
    if documents.others:
        message = f"{where}: is left out, as it is no Node: {names_in_words(documents.others)}"
        findings.append(configmap.finding(message, ("data", key)))
    return documents, findings


@dataclass(slots=True)
class Files:
    """The objects of files, by kind."""

    configs: list[FoundObject] = field(default_factory=list)
    configmaps: list[FoundObject] = field(default_factory=list)
    """All ConfigMaps, including those with a provider config."""
    groups: list[FoundObject] = field(default_factory=list)
    pools: list[FoundObject] = field(default_factory=list)
    profiles: list[FoundObject] = field(default_factory=list)
    nodes: list[FoundObject] = field(default_factory=list)
    others: list[FoundObject] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def read(cls, texts: Sequence[tuple[str, str]]) -> "Files":
        """Sorts the objects of files, given as name and text; mistakes become findings."""
        files = cls()
        for file, text in texts:
            documents, errors = read_with_errors(text, where=file)
            files.findings += [Finding(file, each.line, each.problem) for each in errors]
            for document in documents:
                for prefix, value in _flat(document.value):
                    files.add(file, document, prefix, value)
        return files

    def configmap(self, name: str, *, near: FoundObject | None = None) -> FoundObject | None:
        """Returns the ConfigMap of a name, preferably in the namespace of the object `near`."""
        named = [each for each in self.configmaps if each.name == name]
        beside = [each for each in named if near and each.identity[0] == near.identity[0]]
        return next(iter(beside or named), None)

    def add(self, file: str, document: Document, prefix: Path, value: Any) -> None:
        """Sorts one object, which is at the path `prefix` in a document."""
        if value is None:
            return
        if not isinstance(value, dict):
            sentence = f"{_at(prefix)}is no object of keys and values"
            self.findings.append(Finding(file, line_of(document, prefix), sentence))
            return
        obj = FoundObject(file, document, prefix, value)
        kind = value.get("kind")
        if kind == constants.KIND:
            self.groups.append(obj)
        elif kind == constants.POOL_KIND:
            self.pools.append(obj)
        elif kind == constants.PROFILE_KIND:
            self.profiles.append(obj)
        elif kind == "ConfigMap":
            self._sort_configmap(obj)
        elif kind == "Node" and value.get("apiVersion") == "v1":
            self.nodes.append(obj)
        elif kind is None and _is_config(value):
            self.configs.append(replace(obj, config=value))
        elif isinstance(kind, str) and "apiVersion" in value:
            self.others.append(obj)
        else:
            line = line_of(document, (*prefix, next(iter(value), "")))
            self.findings.append(
                Finding(file, line, f"{_at(prefix)}is no object: {_lacking(value)}")
            )

    def _sort_configmap(self, configmap: FoundObject) -> None:
        self.configmaps.append(configmap)
        data = configmap.value.get("data")
        if data is not None and not isinstance(data, dict):
            self.findings.append(configmap.finding("data: must be an object of texts", ("data",)))
        for key, text in as_map(data).items():
            if not isinstance(text, str):
                problem = f"data.{key}: must be text; write a | after the colon"
                self.findings.append(configmap.finding(problem, ("data", key)))
        size = sum(len(text.encode(errors="replace")) for text in configmap.data.values())
        if size > _MAX_CONFIGMAP_BYTES:
            problem = f"data: has {size} bytes; a ConfigMap holds {_MAX_CONFIGMAP_BYTES}"
            self.findings.append(configmap.finding(problem, ("data",)))
        text = configmap.data.get(CONFIG_KEY)
        if text is None:
            return
        documents, errors = read_with_errors(text, where=f"{configmap.label}, key {CONFIG_KEY}")
        self.findings += [configmap.finding_in_text(CONFIG_KEY, each) for each in errors]
        if errors and not documents:
            return
        filled = [document for document in documents if document.value is not None]
        if len(filled) == 1 and _is_config(filled[0].value):
            config = filled[0]
            self.configs.append(replace(configmap, config=config.value, config_document=config))
        elif configmap.name == _DEFAULT_NAME:
            problem = f"data.{CONFIG_KEY}: is no provider config (apiVersion: {API_VERSION})"
            self.findings.append(configmap.finding(problem, ("data", CONFIG_KEY)))


def _at(prefix: Path) -> str:
    """Returns the beginning of a message: the object's path within its document, `items[2]: `; ""
    for a whole document."""
    return f"{in_words(prefix)}: " if prefix else ""


def _lacking(value: Mapping[str, Any]) -> str:
    kind = value.get("kind")
    if isinstance(kind, str):
        version = "v1" if kind == "Node" else "the version of its API"
        return f"it has no apiVersion; write {version}"
    return (
        "it has no kind; a group has apiVersion: kwok-operator.io/v1alpha1 and kind: KwokNodeGroup,"
        " a Node apiVersion: v1 and kind: Node"
    )


def _is_config(value: object) -> bool:
    if not isinstance(value, dict) or "kind" in value:
        return False
    return value.get("apiVersion") == API_VERSION or bool(_WORDS_OF_A_CONFIG & value.keys())


def _flat(value: Any, prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields the objects in Lists, at any depth (the YAML reader limits it)."""
    items = value_at(value, "items")
    if isinstance(items, list) and str(value.get("kind")).endswith("List"):
        for place, item in enumerate(items):
            yield from _flat(item, (*prefix, "items", place))
    else:
        yield prefix, value


def line_of(document: Document, path: Path) -> int:
    """Returns the line of a part, or of the nearest part around it."""
    while path and path not in document.lines:
        path = path[:-1]
    return document.lines[path] if path else document.line
