"""The ledger of an import: the objects that were read and written, and why some are missing.

ledger.json has everything, ledger.md sums it up for people. Neither contains a time: the same
cluster gives the same ledger.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.formats.markdown import plain
from kwok_operator.importing.notes import Note, Reason, Ref

WRITER: Final = "kwok-operator import"
_VERSION: Final = 1
_MOST_NAMED: Final = 1_000
"""The most objects that ledger.md names for one reason; nobody reads more."""
_EXAMPLES: Final = 3
_CHARACTERS: Final = 300
_FIRST: Final = frozenset(
    "NoSuchKey NoPrice PriceNeeded NodeNotReady NodeCordoned NodeSurplus LabelDropped BoundsSplit"
    " TwoMoments PendingUnknown RequirementUnknown Pending OwnerCameOrWent StoodElsewhere"
    " NodeUnknown NoPriorityClass NoRuntimeClass ResourceClaims TooManyPlaces"
    " VolumesInSeveralPlaces QuotaUnused".split()
)
"""Reasons because of which scheduling or scaling may differ from the original cluster."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A kind, or a part of it, that could not be read."""

    kind: str
    path: str
    reason: str
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Ledger:
    """What an import read, wrote, dropped and changed. `read` and `written` count by kind."""

    read: Mapping[str, int]
    written: Mapping[str, int]
    unread: Sequence[Unread]
    notes: Sequence[Note]

    @property
    def dropped(self) -> int:
        """The number of objects that are left out as a whole."""
        return sum(note.count for note in self.notes if note.dropped)

    @property
    def changed(self) -> int:
        """The number of objects that are written with differences."""
        return len({note.ref for note in self.notes if not note.dropped})

    @property
    def missing(self) -> list[Unread]:
        """The unread parts without which the import is incomplete."""
        return [each for each in self.unread if each.needed]


def ledger_of(
    *,
    read: Mapping[str, int],
    manifests: Iterable[Mapping[str, Any]],
    notes: Iterable[Note],
    unread: Iterable[Unread],
) -> Ledger:
    """Returns the ledger of an import, sorted so that the same content gives the same ledger."""
    written = Counter(str(manifest.get("kind")) for manifest in manifests)
    return Ledger(
        read=dict(sorted(read.items())),
        written=dict(sorted(written.items())),
        unread=sorted(unread, key=lambda each: (each.kind, each.path)),
        notes=sorted(notes, key=_place),
    )


def as_json(ledger: Ledger) -> dict[str, Any]:
    """Returns the content of ledger.json."""
    return {
        "writer": WRITER,
        "version": _VERSION,
        "read": dict(ledger.read),
        "written": dict(ledger.written),
        "unread": [
            {"kind": each.kind, "path": each.path, "reason": each.reason, "needed": each.needed}
            for each in ledger.unread
        ],
        "reasons": {str(r): r.sentence for r in sorted({note.reason for note in ledger.notes})},
        "dropped": [_entry(note) for note in ledger.notes if note.dropped],
        "changed": [_entry(note) for note in ledger.notes if not note.dropped],
    }


def as_text(ledger: Ledger) -> str:
    """Returns the content of ledger.md."""
    lines = [f"<!-- Written by {WRITER}. -->", "# Ledger of this import", ""]
    lines += _unread(ledger)
    lines += _first(ledger.notes)
    lines += _counts(ledger)
    lines += _dropped([note for note in ledger.notes if note.dropped])
    lines += _changed([note for note in ledger.notes if not note.dropped])
    lines += ["Every object with every change is in `ledger.json`."]
    return "\n".join(lines) + "\n"


def _place(note: Note) -> tuple[Any, ...]:
    return (str(note.reason), note.ref, note.field, note.detail, note.count)


def _entry(note: Note) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": note.ref.kind, "name": note.ref.name}
    if note.ref.namespace:
        entry["namespace"] = note.ref.namespace
    entry["reason"] = str(note.reason)
    if note.field:
        entry["field"] = note.field
    if note.detail:
        entry["detail"] = note.detail
    if note.count != 1:
        entry["count"] = note.count
    return entry


def _unread(ledger: Ledger) -> list[str]:
    optional = [each for each in ledger.unread if not each.needed]
    if ledger.missing:
        first = "This import is incomplete. These could not be read, or not all of them:"
        lines = ["## Not read", "", first, "", *map(_unread_line, ledger.missing), ""]
    else:
        lines = ["Everything that was needed could be read.", ""]
    if optional:
        lines += ["Not read either, and not needed:", "", *map(_unread_line, optional), ""]
    return lines


def _unread_line(each: Unread) -> str:
    return f"- {_text(each.kind)}: {_text(each.reason)}"


def _first(notes: Sequence[Note]) -> list[str]:
    """Returns the lines of ledger.md's first section, on why a copy of the imported cluster may
    behave differently from it; none if there is no reason.
    """
    groups = _by_reason([note for note in notes if note.reason in _FIRST])
    lines = [f"- {sentence}: {_examples(group)}" for sentence, group in groups]
    return ["## Know this first", "", *lines, ""] if lines else []


def _examples(notes: Sequence[Note]) -> str:
    named = list(dict.fromkeys(map(_shown, notes)))
    more = f" and {len(named) - _EXAMPLES:,} more" if len(named) > _EXAMPLES else ""
    return ", ".join(named[:_EXAMPLES]) + more


def _shown(note: Note) -> str:
    """Returns the note's object as text; if the note is about no object, its field."""
    nameless = not note.ref.name and note.field
    return _text(note.field) if nameless else _named(note.ref)


def _counts(ledger: Ledger) -> list[str]:
    lines = ["## Counts", "", "| Kind | Read | Written |", "|---|---:|---:|"]
    for kind in sorted(ledger.read.keys() | ledger.written.keys()):
        lines.append(
            f"| {_text(kind)} | {ledger.read.get(kind, 0):,} | {ledger.written.get(kind, 0):,} |"
        )
    explained = (
        "Nodes become KwokNodeGroups. Pods are counted and not written where their owner is known:"
        " it makes them anew. Volumes and their claims only say where pods may be. Namespaces and"
        " PriorityClasses that every cluster has aren't written."
    )
    return [*lines, "", explained, ""]


def _dropped(notes: Sequence[Note]) -> list[str]:
    if not notes:
        return ["## Left out", "", "No object was left out as a whole.", ""]
    lines = ["## Left out", ""]
    for sentence, group in _by_reason(notes):
        lines += [f"**{sum(note.count for note in group):,}**: {sentence}", ""]
        lines += [f"- {_described(note)}" for note in group[:_MOST_NAMED]]
        if len(group) > _MOST_NAMED:
            lines.append(f"- and {len(group) - _MOST_NAMED:,} more")
        lines.append("")
    return lines


def _changed(notes: Sequence[Note]) -> list[str]:
    if not notes:
        return ["## Changed", "", "No object was changed.", ""]
    lines = ["## Changed", "", "| Objects | What, and why | For example |", "|---:|---|---|"]
    for sentence, group in _by_reason(notes):
        refs = list(dict.fromkeys(note.ref for note in group))
        objects = max(len(refs), sum(note.count for note in group if note.count > 1))
        lines.append(f"| {objects:,} | {sentence} | {_examples(group)} |")
    return [*lines, ""]


def _by_reason(notes: Sequence[Note]) -> Iterator[tuple[str, list[Note]]]:
    """Groups notes by the sentence of their reason. Reasons with the most notes come first."""
    groups: dict[Reason, list[Note]] = defaultdict(list)
    for note in notes:
        groups[note.reason].append(note)
    order = sorted(groups, key=lambda reason: (-len(groups[reason]), str(reason)))
    return ((_text(reason.sentence), groups[reason]) for reason in order)


def _described(note: Note) -> str:
    times = f" ({note.count:,} objects)" if note.count != 1 else ""
    detail = f": {_text(note.detail)}" if note.detail else ""
    return f"{_named(note.ref)}{times}{detail}"


def _named(ref: Ref) -> str:
    """Returns the object in words. A reference without a name means all objects of the kind in its
    namespace.
    """
    nameless = ref.namespace and not ref.name
    return f"{_text(ref.kind)}s in {_text(ref.namespace)}" if nameless else _text(ref)


def _text(text: object) -> str:
    return plain(text, limit=_CHARACTERS)
