"""The ledger of an import."""

import json
import random

from kwok_operator.importing.ledger import Ledger, Unread, as_json, as_text, ledger_of
from kwok_operator.importing.notes import Note, Reason, Ref

REASON = next(iter(Reason))


def note(name: str, *, dropped: bool = False, count: int = 1) -> Note:
    return Note(Ref("Pod", "shop", name), REASON, field="spec", dropped=dropped, count=count)


NOTES = [*(note(f"changed-{number}") for number in range(5)), note("gone", dropped=True, count=3)]


def ledger(notes: list[Note], unread: list[Unread] | None = None) -> Ledger:
    manifests = [{"kind": "KwokNodeGroup"}] * 2
    return ledger_of(
        read={"Pod": 5, "Node": 1200}, manifests=manifests, notes=notes, unread=unread or []
    )


def test_what_was_not_read_stands_first() -> None:
    unread = [
        Unread("Job", "/apis/batch/v1/jobs", "403 Forbidden"),
        Unread("ConfigMap", "/api/v1/configmaps", "403", needed=False),
    ]
    found = ledger(NOTES, unread)
    assert [each.kind for each in found.missing] == ["Job"]
    text = as_text(found)
    assert text.index("Job: 403 Forbidden") < text.index("ConfigMap: 403") < text.index("Counts")


def test_counts_and_objects() -> None:
    found = ledger(NOTES)
    assert (found.dropped, found.changed) == (3, 5)
    text = as_text(found)
    assert "| Node | 1,200 | 0 |" in text
    assert "| KwokNodeGroup | 0 | 2 |" in text
    assert "- Pod shop/gone (3 objects)" in text
    assert f"| 5 | {REASON.sentence} | Pod shop/changed-0, " in text
    assert "changed-4" not in text


def test_json_has_everything() -> None:
    written = as_json(ledger(NOTES))
    assert [each["name"] for each in written["changed"]] == [f"changed-{n}" for n in range(5)]
    (gone,) = written["dropped"]
    assert gone == {
        "kind": "Pod",
        "namespace": "shop",
        "name": "gone",
        "reason": str(REASON),
        "field": "spec",
        "count": 3,
    }
    assert written["reasons"] == {str(REASON): REASON.sentence}


def test_any_order_gives_the_same() -> None:
    shuffled = random.Random(1).sample(NOTES, len(NOTES))
    assert json.dumps(as_json(ledger(shuffled))) == json.dumps(as_json(ledger(NOTES)))
    assert as_text(ledger(shuffled)) == as_text(ledger(NOTES))


def test_names_are_no_markup() -> None:
    text = as_text(ledger([note("a|b\n# <script> `c`", dropped=True), note("x|y")]))
    assert r"a\|b # \<script\> \`c\`" in text
    assert r"x\|y |" in text


def test_notes_on_many_objects_have_no_name() -> None:
    ended = Note(Ref("Pod", "shop", ""), REASON, count=4, dropped=True)
    assert "- Pods in shop (4 objects)" in as_text(ledger([ended]))
