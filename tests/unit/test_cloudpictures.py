"""The samples of the simulated cloud, and the pictures that docs/cloud.md has of them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from hack.cloudpictures import __main__ as pictures
from hack.cloudpictures.__main__ import DIRECTORY, main
from hack.cloudpictures.scenes import SAMPLES, SCENES
from kwok_operator.cloud.states import State
from kwok_operator.offline.validation import validate

ROOT: Final = Path(__file__).resolve().parents[2]
NAMES: Final = [scene.sample for scene in SCENES]


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, bytes]]:
    """They are made once, which takes seconds."""
    made = pictures.generate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "generate", lambda: made)
        yield made


class TestTheFiles:
    @pytest.mark.usefixtures("made")
    def test_what_is_committed_is_fresh(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--check"]) == 0, capsys.readouterr().err

    def test_stale_ones_are_named_and_renewed(
        self, tmp_path: Path, made: dict[str, bytes], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in made.keys() - {"cloud-spot.svg"}:
            (tmp_path / name).write_bytes(made[name])
        (tmp_path / "cloud-gone.svg").write_text("of a sample that is no more")
        assert main(["--check"], directory=tmp_path) == 1
        assert "stale: cloud-gone.svg, cloud-spot.svg; run" in capsys.readouterr().err
        assert main([], directory=tmp_path) == 0
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == made

    def test_the_picture_of_the_states_names_all(self) -> None:
        text = (DIRECTORY / "instance-states.svg").read_text()
        assert set(re.findall(r"<text[^>]*>(\w+)</text>", text)) >= {each.value for each in State}

    def test_they_hold_shapes_and_words_only(self, made: dict[str, bytes]) -> None:
        for name, content in made.items():
            tags = set(re.findall(r"<(\w+)", content.decode()))
            assert tags <= {"svg", "title", "text", "path", "rect", "defs", "marker"}, name


class TestTheSamples:
    def test_each_is_applied_at_once_with_others_or_has_a_picture(self) -> None:
        listed = yaml.safe_load((SAMPLES / "kustomization.yaml").read_text())["resources"]
        every = {path.name for path in SAMPLES.glob("*.yaml")} - {"kustomization.yaml"}
        assert every == {*listed, *(f"{name}.yaml" for name in NAMES)}

    @pytest.mark.parametrize("name", NAMES)
    def test_it_is_valid_and_says_how_to_apply_it(self, name: str) -> None:
        text = (SAMPLES / f"{name}.yaml").read_text()
        assert f"kubectl apply -f deploy/samples/{name}.yaml" in text
        assert validate([(name, text)]).findings == ()

    @pytest.mark.parametrize("name", NAMES)
    def test_the_page_tells_of_it_and_shows_it(self, name: str) -> None:
        page = (ROOT / "docs" / "cloud.md").read_text()
        assert f"(../deploy/samples/{name}.yaml)" in page
        assert f"(img/cloud-{name}.svg)" in page

    def test_those_for_the_scheduler_are_valid_and_told_of(self) -> None:
        page = (ROOT / "docs" / "scheduling.md").read_text()
        files = [*(SAMPLES / "scheduling").glob("*.yaml")]
        applied = set(re.findall(r"apply -f (deploy/samples/scheduling/.+\.yaml)", page))
        assert {str(file.relative_to(ROOT)) for file in files} == applied
        assert [validate([(f.name, f.read_text())]).findings for f in files] == [()] * len(files)
