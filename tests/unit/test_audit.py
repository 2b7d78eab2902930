"""What runs besides our own code: pinned, installed so, under a licence that may be shipped."""

import json
import subprocess
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from hack import audit
from hack.vendored import FOLDERS, main, vendored


class Installed(Distribution):
    """A distribution with this metadata."""

    def __init__(self, *, version: str = "1.0", **metadata: str) -> None:
        self._text = f"Name: it\nVersion: {version}\n" + "".join(
            f"{key.replace('_', '-')}: {value}\n" for key, value in metadata.items()
        )

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return Path(path)


def told(pinned: dict[str, str], **metadata: str) -> list[str]:
    return list(audit.problems({"it": Installed(**metadata)}, pinned))


def test_this_checkout_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main([]) == 0, capsys.readouterr().err


def test_what_runs_is_followed_to_its_end() -> None:
    found = audit.runtime(audit.required(audit.PYPROJECT.read_text())).keys()
    assert {"aiohttp", "yarl", "idna", "kopf", "protobuf"} <= found
    assert not {"pip", "pytest", "grpcio", "mypy", "kwok-operator"} & found


def test_extras_and_markers_count() -> None:
    assert audit.runtime(["iniconfig; sys_platform == 'nowhere'"]) == {}
    assert audit.runtime(["iniconfig"]).keys() == {"iniconfig"}
    # Nobody has installed what this extra brings, so it is missed.
    with pytest.raises(PackageNotFoundError, match=r"pykube|kubernetes"):
        audit.runtime(["kopf[full-auth]"])


@pytest.mark.parametrize(
    ("field", "value", "licences"),
    [
        ("License_Expression", "MIT", {"MIT"}),
        ("License_Expression", "(Apache-2.0 AND MIT) OR ISC", {"Apache-2.0", "MIT", "ISC"}),
        ("Classifier", "License :: OSI Approved :: MIT License", {"MIT"}),
        ("License", "Apache 2.0", {"Apache-2.0"}),
        ("License", "Ask us", {"Ask us"}),
        ("Summary", "none", set()),
    ],
)
def test_a_licence_is_read_wherever_it_stands(field: str, value: str, licences: set[str]) -> None:
    assert audit.licences_of(Installed(**{field: value})) == licences


def test_a_package_that_is_as_it_should_be_is_not_mentioned() -> None:
    assert told({"it": "1.0"}, License_Expression="MIT") == []


def test_a_missing_pin_is_reported() -> None:
    assert told({}, License_Expression="MIT") == ["it has no line in constraints.txt"]


def test_another_version_is_reported() -> None:
    assert told({"it": "2.0"}, License_Expression="MIT") == [
        "it is 1.0 here, and constraints.txt has 2.0"
    ]


@pytest.mark.parametrize("licence", ["AGPL-3.0-only", "MIT AND GPL-3.0-or-later"])
def test_a_licence_that_is_not_allowed_is_reported(licence: str) -> None:
    (line,) = told({"it": "1.0"}, License_Expression=licence)
    assert line.startswith("it: its licence is ") and "GPL-3.0" in line


def test_no_licence_is_reported() -> None:
    (line,) = told({"it": "1.0"})
    assert line.startswith("it: its licence is nothing")


def test_vendored_code_is_listed_and_its_licence_declared(tmp_path: Path) -> None:
    pyproject = audit.PYPROJECT.read_text()
    parts = [*map(vendored, FOLDERS)]
    assert list(audit.problems_of_vendored(parts, pyproject)) == []
    assert (
        len(list(audit.problems_of_vendored([parts[0]._replace(licence="GPL-3.0")], pyproject)))
        == 2
    )
    files = tomllib.loads(pyproject)["project"]["license-files"]
    assert {str((folder / "LICENSE").relative_to(audit.ROOT)) for folder in FOLDERS} < {*files}
    libraries = {path.parent for path in (audit.ROOT / "kwok_operator").rglob("*.min.js")}
    assert libraries == {*FOLDERS}
    listed = tmp_path / "list.json"
    listed.write_text('{"components": [{"name": "it"}]}')
    assert main([str(listed)]) == 0
    names = [each["name"] for each in json.loads(listed.read_text())["components"]]
    assert names == ["it", "uplot"]


@pytest.mark.parametrize(
    "line", ["a", "a>=1", "a==1.*", "a @ file:///a", "-e .", "a==1 ; x", "b==1\nB==2"]
)
def test_constraints_are_exact_versions_each_once(line: str) -> None:
    with pytest.raises(ValueError, match=r"constraints\.txt: "):
        audit.pins(f"first==1\n{line}\n")


def answer_of(monkeypatch: pytest.MonkeyPatch, *entries: dict[str, Any] | str) -> list[str]:
    """What is told when the vulnerability scanner answers so."""
    out = entries[0] if isinstance(entries[0], str) else json.dumps({"dependencies": entries})
    done = subprocess.CompletedProcess([], 0, stdout=out, stderr="a warning\nno connection\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    return list(audit.vulnerabilities({"it": Installed(), "other": Installed()}))


def test_no_known_vulnerability_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer_of(monkeypatch, {"name": "it", "version": "1.0", "vulns": []}) == []


def test_a_known_vulnerability_is_reported_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"id": "CVE-1", "fix_versions": ["1.1"]}
    assert answer_of(monkeypatch, {"name": "it", "version": "1.0", "vulns": [known]}) == [
        "it 1.0 has CVE-1, fixed in 1.1"
    ]


def test_an_index_without_an_answer_is_no_good_news(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = answer_of(monkeypatch, {"name": "it", "skip_reason": "not found"})
    assert "of 1 of 2 packages could not be looked up" in line
    (line,) = answer_of(monkeypatch, "no JSON")
    assert line == "known vulnerabilities could not be looked up: no connection"
