"""Replaces names in manifests and notes by hashes, in any field, unless the names are public.

Equal texts stay equal and different texts different, so selectors, affinity and tolerations match
as before. Only the key or the table leads back to the original names.
"""

import base64
import hmac
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.importing import publicnames as public
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.topology.api import labels_of, long_form

_HASH_LENGTH: Final = 12
"""The length of a hash in base32 characters: 60 bits, enough to keep a million names different."""
_PRIVATE_ADDRESSES: Final = {4: ("10.0.0.0", 24), 6: ("fd00::", 64)}
_LABELS: Final = frozenset(
    """labels matchLabels nodeSelector annotations data stringData binaryData""".split()
)
_RESOURCES: Final = frozenset(
    """requests limits capacity allocatable hard podFixed resources
    max min default defaultRequest maxLimitRequestRatio""".split()
)
"""Fields that are maps by resource name, if the map is flat: elsewhere, fields of these names have
other content.
"""
_NO_NAMES: Final = frozenset({"metrics", "behavior"})
"""Fields of a HorizontalPodAutoscaler of which only numbers and Kubernetes' own words are kept."""
_KEYS: Final = frozenset({"topologyKey", "matchLabelKeys", "mismatchLabelKeys", "gpuLabel"})
_LEVELS: Final = frozenset({"label", "also", "unit", "nodeLabel"})
"""Fields with a label of a level of racks, or a short form of one."""
_AS_IT_IS: Final = frozenset(
    """apiVersion kind type operator effect protocol restartPolicy preemptionPolicy scopeName scopes
    whenUnsatisfiable nodeAffinityPolicy nodeTaintsPolicy podManagementPolicy concurrencyPolicy
    completionMode unhealthyPodEvictionPolicy whenDeleted whenScaled podReplacementPolicy
    schedule timeZone schedulerName
    group consolidateAfter consolidationPolicy expireAfter terminationGracePeriod reasons duration
    zone instanceType arch os cpu memory ephemeralStorage hourly gpuTypes order""".split()
)
_NAMES: Final = frozenset(
    """name namespace namespaces priorityClassName runtimeClassName serviceName values
    domain""".split()
)
"""Fields whose values are names of objects, even if they look like a number or the word true."""
_ORDERING: Final = frozenset({"Gt", "Lt", "Gte", "Lte"})
_IN_A_MAP: Final = re.compile(
    rf"(.*?\b(?:{'|'.join(sorted(_LABELS))}|{'|'.join(sorted(_RESOURCES))}))(?:\.(.+)|\[(.+)\])"
)
_OF_A_CLASS: Final = re.compile(
    r"(.+)(\.(?:storageclass\.storage|deviceclass\.resource)\.k8s\.io"
    r"/(?:requests\.storage|persistentvolumeclaims|devices))"
)
"""A resource of a ResourceQuota that is about one StorageClass or DeviceClass."""
_POD_OF_A_SET: Final = "statefulset.kubernetes.io/pod-name"
_LEVEL_OF_KUEUE: Final = re.compile(
    r"kueue\.x-k8s\.io/podset-(slice-)?(required|preferred)-topology"
)
"""Annotations of pods whose value is the label of a level."""
_NUMBERED: Final = re.compile(r"(.+)-([0-9]{1,9})")
_OWN_WORDS: Final = (
    *(Reason.NOT_SCHEDULING, Reason.PARTLY_DONE, Reason.BOUNDS_WIDENED, Reason.AS_ADMITTED),
    Reason.PENDING,
)
_WORD: Final = re.compile(r"[a-z][a-zA-Z]{1,40}|[0-9]{1,6}|\*")


def in_new_order(manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorts the objects of each kind by their new names, as the old order would reveal something of
    the old names.
    """
    kinds = {kind: place for place, kind in enumerate(dict.fromkeys(m["kind"] for m in manifests))}

    def place(manifest: Mapping[str, Any]) -> tuple[int, str, str]:
        metadata = manifest["metadata"]
        return kinds[manifest["kind"]], metadata.get("namespace", ""), metadata["name"]

    return sorted(manifests, key=place)


@dataclass(slots=True)
class Anonymizer:
    """Makes names anonymous. With the same key, a text always gets the same hash; `table` has the
    original of each hash.
    """

    key: bytes = field(repr=False)
    table: dict[str, str] = field(default_factory=dict, repr=False)
    _hashes: dict[str, str] = field(default_factory=dict, repr=False)
    _ordered: set[str] = field(default_factory=set, repr=False)
    _domains: dict[str, set[str]] = field(default_factory=dict, repr=False)
    """The labels of the racks of each domain."""

    def manifests(self, manifests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Renames the names in manifests. Pass all manifests at once: if any of them compares the
        values of a label as numbers (Gt, Lt), this label's numbers stay in all of them. The numbers
        in names of racks stay, too.
        """
        for manifest in manifests:
            if topology := as_map(value_at(manifest, "spec", "template", "topology")):
                domain = topology.get("domain") or text_at(manifest, "metadata", "name")
                levels = map(as_map, as_list(topology.get("levels")))
                labels = {label for level in levels for label in labels_of(level)}
                self._domains.setdefault(domain, set()).update(map(long_form, labels))
        self._ordered.update(key for manifest in manifests for key in _compared(manifest))
        return [self._object(manifest) for manifest in manifests]

    def notes(self, notes: Iterable[Note]) -> list[Note]:
        """Renames the names in notes, and removes details that may contain names."""
        return [
            replace(
                note,
                ref=self.ref(note.ref),
                field=self.field_path(note.field),
                detail=note.detail if _has_own_words(note) else "",
            )
            for note in notes
        ]

    def ref(self, ref: Ref) -> Ref:
        kind = ref.kind if ref.kind in public.KINDS else self.hash(ref.kind)
        return Ref(kind, self.name(ref.namespace), self.name(ref.name))

    def field_path(self, path: str) -> str:
        """Returns the path of a field with anonymous names, also in keys of labels and names of
        resources.
        """
        if match := _IN_A_MAP.fullmatch(path):
            above, key = match[1], match[2] or match[3]
            in_labels = above.rpartition(".")[2] in _LABELS
            renamed = self.label_key(key) if in_labels else self.resource(key)
            return f"{self.field_path(above)}[{renamed}]"
        return re.sub(r"[^.\[\]]+", lambda step: self._step(step[0]), path)

    def name(self, text: str) -> str:
        """Returns the anonymous name of an object. Public names stay as they are."""
        if not text or text in public.NAMES or public.OWN_NAME.fullmatch(text):
            return text
        return self.hash(text)

    def label_key(self, key: str) -> str:
        domain, slash, name = key.rpartition("/")
        if public.is_public_key(key):
            return key
        return f"{self.hash(domain)}.example/{self.hash(name)}" if slash else self.hash(key)

    def level(self, label: str) -> str:
        """Returns the anonymous key of the label of a topology's level. A group's short form such
        as kubernetes/zone first becomes the full key, which all other objects use.
        """
        return self.label_key(long_form(label))

    def unit(self, value: str, *, label: str = "") -> str:
        """Returns the anonymous value of a topology's label, such as a rack's. In DOMAIN-0-3, where
        DOMAIN is the domain that some group's topology names, only DOMAIN is replaced; any other
        value becomes a hash.
        """
        domains = [
            domain
            for domain, labels in self._domains.items()
            if (not label or label in labels)
            and re.fullmatch(r"(-[0-9]+)+", value.removeprefix(domain))
        ]
        domain = max(domains, key=len, default="")
        return f"{self.name(domain)}{value[len(domain) :]}" if domain else self.hash(value)

    def label_value(self, key: str, value: str) -> str:
        if any(key in labels for labels in self._domains.values()):
            return self.unit(value, label=key)
        if key in public.KEYS_OF_NAMES:
            return self.name(value)
        if _LEVEL_OF_KUEUE.fullmatch(key):
            return self.label_key(value)
        if key == _POD_OF_A_SET and (of_set := _NUMBERED.fullmatch(value)):
            return f"{self.name(of_set[1])}-{of_set[2]}"  # as the controller will call it
        if public.is_public_value(key, value) or (key in self._ordered and _is_integer(value)):
            return value
        return self.hash(value)

    def resource(self, name: str) -> str:
        if of_class := _OF_A_CLASS.fullmatch(name):
            return f"{self.hash(of_class[1])}{of_class[2]}"
        if public.is_public_resource(name):
            return name
        prefix, _, plain = name.partition(".")
        if prefix in ("requests", "limits") and "/" in plain:
            return f"{prefix}.{self.resource(plain)}"
        domain, slash, last = name.rpartition("/")
        if domain == "count":
            return f"count/{self.hash(last)}"
        return f"{self.hash(domain)}.example/{self.hash(last)}" if slash else self.hash(name)

    def address(self, text: str) -> str:
        """Returns a private IP address instead of a pod's hostIP. Different addresses become
        different ones, so that the same host port on two of them still causes no conflict.
        """
        try:
            original = ipaddress.ip_address(text)
        except ValueError:
            return self.hash(text)
        if original.is_unspecified or original.is_loopback:
            return text
        start, bits = _PRIVATE_ADDRESSES[original.version]
        number = int.from_bytes(self._digest(text)) % 2**bits
        other = str(ipaddress.ip_address(start) + number)
        self.table[other] = text
        return other

    def hash(self, text: str) -> str:
        """Returns a hash that is valid as a name of any object, label or domain, and adds the
        original to the table.
        """
        if text not in self._hashes:
            self._hashes[text] = name = self.unlisted_hash(text)
            self.table[name] = text
        return self._hashes[text]

    def unlisted_hash(self, text: str) -> str:
        """Returns the hash that `hash` returns, without adding the original to the table: for names
        that are too numerous to look up.
        """
        return f"n-{base64.b32encode(self._digest(text)).decode().lower()[:_HASH_LENGTH]}"

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self.key, text.encode(errors="surrogatepass"), "sha256")

    def _step(self, step: str) -> str:
        return step if _WORD.fullmatch(step) else self.hash(step)

    def _object(self, value: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(value.get("key"), str):
            return self._with_key(value, value["key"])
        return {name: self._part(name, part) for name, part in value.items()}

    def _part(self, name: str, value: Any) -> Any:
        if name in _NO_NAMES:
            return value
        if isinstance(value, Mapping):
            if name in _LABELS or (name == "selector" and _is_flat(value)):
                renamed = {self.label_key(k): self._value(k, v) for k, v in value.items()}
                return dict(sorted(renamed.items()))
            if name in _RESOURCES and _is_flat(value):
                return {self.resource(k): self._amount(v) for k, v in value.items()}
            return self._object(value)
        if isinstance(value, list):
            return [self._part(name, item) for item in value]
        if not isinstance(value, str) or name in _AS_IT_IS:
            return value
        if name in _KEYS:
            return self.label_key(value)
        if name in _LEVELS:
            return self.level(value)
        if name == "outageUnits":
            return self.unit(value)
        if name == "hostIP":
            return self.address(value)
        return value if name not in _NAMES and public.is_harmless(value) else self.name(value)

    def _with_key(self, value: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Renames the key and the values of a requirement, a toleration or a taint. Whether values
        are public, and so stay, depends on `key`, which is that of a label or taint.
        """
        renamed: dict[str, Any] = {}
        for name, part in value.items():
            match name, part:
                case "key", _:
                    renamed[name] = self.label_key(key)
                case "value", _:
                    renamed[name] = self._value(key, part)
                case "values", list():
                    renamed[name] = [self._value(key, item) for item in part]
                case _ if name != "values":
                    renamed[name] = self._part(name, part)
        return renamed

    def _value(self, key: str, value: Any) -> Any:
        return self.label_value(key, value) if isinstance(value, str) else value

    def _amount(self, value: Any) -> Any:
        return value if not isinstance(value, str) or public.is_amount(value) else self.hash(value)


def _compared(value: Any) -> Iterator[str]:
    """Yields the label keys whose values some selector compares as numbers."""
    if isinstance(value, Mapping):
        if value.get("operator") in _ORDERING and isinstance(value.get("key"), str):
            yield value["key"]
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from _compared(part)


def _has_own_words(note: Note) -> bool:
    return note.reason in _OWN_WORDS or (
        note.reason is Reason.OWNER_UNKNOWN and note.detail in public.KINDS
    )


def _is_flat(value: Mapping[str, Any]) -> bool:
    return not any(isinstance(part, Mapping | list) for part in value.values())


def _is_integer(text: str) -> bool:
    return text.lstrip("-").isdigit() and len(text) < 20
