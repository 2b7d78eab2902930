"""The picture in docs/rehearsals.md: well-formed, on its own, with the words of the verdict."""

import gzip
from pathlib import Path
from xml.etree import ElementTree

from hack.reportpicture import PICTURE, draw, main
from tests.fakes.rehearsed import NAME, content, judge, random_run

EXPECT = [{"figure": "pods.running", "atLeast": 1}, {"figure": "nodes.total", "atMost": 0}]
HOSTILE = "<script>&\x00"


def test_it_has_the_verdict_and_plots(tmp_path: Path) -> None:
    found = judge(random_run(3), expect=EXPECT, scenario=HOSTILE, teaches=HOSTILE)
    recording, path = tmp_path / NAME, tmp_path / "a.svg"
    header = {"expect": EXPECT, "scenario": HOSTILE, "teaches": HOSTILE}
    recording.write_bytes(gzip.compress(content(random_run(3), **header)))
    assert main([str(recording)], path=path) == 0
    assert path.read_text() == draw(found)
    picture = ElementTree.parse(path).getroot()
    texts = list(picture.itertext())
    for outcome in found.outcomes:
        words = [text for text in texts if text.strip()]
        at = words.index(outcome.name)
        assert words[at - 1] == ("held" if outcome.held else "failed")
        assert outcome.reason.startswith(words[at + 1].rstrip("…"))
    assert {True, False} == {outcome.held for outcome in found.outcomes}
    assert len([each for each in picture.iter() if each.get("aria-label")]) == 4


def test_what_is_committed_needs_nothing_else() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert len(text) <= 150_000
    assert "href" not in text and "url(" not in text and "<script" not in text
