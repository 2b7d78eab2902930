"""The folder that an import writes."""

import io
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import SettingsError
from kwok_operator.importing import folder
from kwok_operator.importing.folder import OutputError, check_output, files_of, write
from kwok_operator.importing.ledger import Ledger, ledger_of
from kwok_operator.importing.yamlout import dump

GROUP = {
    "apiVersion": "kwok-operator.io/v1alpha1",
    "kind": "KwokNodeGroup",
    "metadata": {"name": "a"},
}
MANIFESTS: list[dict[str, Any]] = [
    GROUP,
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b", "namespace": "shop"}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c", "namespace": "default"}},
]


def ledger(manifests: list[dict[str, Any]]) -> Ledger:
    return ledger_of(read={"Pod": 1}, manifests=manifests, notes=[], unread=[])


def files(manifests: list[dict[str, Any]] = MANIFESTS) -> dict[str, bytes]:
    return files_of(manifests, ledger(manifests))


def in_folder(path: Path) -> dict[str, bytes]:
    found = (each for each in path.rglob("*") if each.is_file())
    return {each.relative_to(path).as_posix(): each.read_bytes() for each in found}


def applied(written: dict[str, bytes]) -> list[tuple[str, str]]:
    """Kind and name of each object, in the order of the kustomization."""
    listed = yaml.safe_load(written["kustomization.yaml"])
    objects = [o for name in listed["resources"] for o in yaml.safe_load_all(written[name])]
    return [(each["kind"], each["metadata"]["name"]) for each in objects]


def test_everything_is_applied_in_order() -> None:
    assert applied(files()) == [
        ("Namespace", "shop"),
        ("PriorityClass", "high"),
        ("KwokNodeGroup", "a"),
        ("Pod", "c"),
        ("Deployment", "b"),
    ]
    assert yaml.safe_load(files()["kustomization.yaml"])["sortOptions"] == {"order": "fifo"}


def test_long_files_are_split() -> None:
    namespaces = ["shop", "shop-2"]
    many = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"p{number:04}",
                "namespace": namespace,
                "labels": {"a": "x" * 2000},
            },
        }
        for namespace in namespaces
        for number in range(1200)
    ]
    written = files(many)
    assert max(map(len, written.values())) < 1_100_000
    assert len(applied(written)) == 2400
    assert {name for name in written if name.startswith("namespaces/")} == {
        f"namespaces/{namespace}{part}.yaml"
        for namespace in namespaces
        for part in ("", ".2", ".3")
    }


_GO_READS_ELSE = re.compile(
    r"(?i)[-+.0-9][-+.0-9a-z_:]*|y|n|yes|no|on|off|true|false|null|~|\.?inf|\.?nan|"
)


@given(st.text() | st.from_regex(_GO_READS_ELSE, fullmatch=True))
def test_text_stays_text(text: str) -> None:
    written = dump({"kind": "A", "metadata": {"labels": {"key": text, text or "empty": "value"}}})
    labels = yaml.safe_load(written)["metadata"]["labels"]
    assert labels["key"] == text or text == "key"
    if _GO_READS_ELSE.fullmatch(text):
        assert f'"{text}"' in written


def test_shared_parts_are_written_twice() -> None:
    shared = {"a": ["b"]}
    assert "&" not in dump({"kind": "A", "spec": [shared, shared]})


def test_what_can_t_be_encoded_is_written_nevertheless() -> None:
    assert b"?" in dump({"kind": "\ud800"}).encode()


@pytest.mark.parametrize("name", ["out", "out.tar.gz"])
def test_the_same_gives_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / name
    write(output, files())
    first = in_folder(tmp_path)
    monkeypatch.setattr("time.time", lambda: 1e9)
    write(output, files())
    assert in_folder(tmp_path) == first


def test_one_file_holds_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "out", files())
    write(tmp_path / "rehearsal.tar.gz", files())
    with tarfile.open(tmp_path / "rehearsal.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert in_folder(tmp_path / "rehearsal") == in_folder(tmp_path / "out")


def test_an_earlier_import_is_replaced_as_a_whole(tmp_path: Path) -> None:
    output = tmp_path / "out"
    write(output, files())
    write(output, files([GROUP]))
    assert in_folder(output) == files([GROUP])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_that_was_killed_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL, after the first of the two renames."""
    output = tmp_path / "out[1]"
    write(output, files())
    before = in_folder(output)
    output.rename(tmp_path / ".out[1].0badcafe.old")
    folder.check_output(output)
    assert in_folder(output) == before
    assert list(tmp_path.iterdir()) == [output]


def test_a_place_that_can_t_be_looked_at_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", forbidden)
    with pytest.raises(SettingsError, match="Permission denied; choose another place"):
        folder.check_output(tmp_path / "out")


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    write(output, files())
    assert in_folder(output) == files()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", b"mine"),
        ("namespaces/mine.yaml", b"kind: Pod\n"),
        ("kustomization.yaml", b"resources: []\n"),
        ("ledger.md", b"my own ledger\n"),
        ("more/deep.yaml", b""),
    ],
)
def test_what_no_import_wrote_is_never_replaced(
    name: str, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    output = tmp_path_factory.mktemp("any") / "out"
    write(output, files())
    path = output / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    before = in_folder(output)
    with pytest.raises(SettingsError, match=name.partition("/")[0]):
        write(output, files([GROUP]))
    assert in_folder(output) == before


def test_a_link_is_foreign(tmp_path: Path) -> None:
    output = tmp_path / "out"
    write(output, files())
    (output / "namespaces" / "link.yaml").symlink_to(output / "cluster.yaml")
    with pytest.raises(SettingsError, match=r"link\.yaml"):
        check_output(output)


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_foreign_file_is_never_replaced(content: bytes | None, tmp_path: Path) -> None:
    output = tmp_path / "backup.tar.gz"
    if content is None:
        with tarfile.open(output, "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("kustomization.yaml"), io.BytesIO())
    else:
        output.write_bytes(content)
    before = output.read_bytes()
    with pytest.raises(SettingsError):
        write(output, files())
    assert output.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/out", "file/out", "file"])
def test_a_place_that_is_none_is_reported_before_reading(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingsError):
        check_output(tmp_path / place)


@pytest.mark.parametrize("name", ["../../out", "a/b", "..", "A", "", None, 5, "a.2"])
def test_a_namespace_that_is_a_path_leads_nowhere(name: Any) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": name}}
    assert files([pod]).keys() == {
        "cluster.yaml",
        "kustomization.yaml",
        "ledger.md",
        "ledger.json",
    }


@pytest.mark.parametrize("name", ["out", "out.tar.gz"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_leaves_what_was_there(
    name: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / name
    write(output, files())
    before = in_folder(tmp_path)

    step = "replace" if folder.is_archive(output) else "rename"
    real = getattr(Path, step)

    def fails(path: Path, to: Path) -> Any:
        if path.name.startswith(".") and path.suffix != ".old":
            raise error
        return real(path, to)

    monkeypatch.setattr(Path, step, fails)
    with pytest.raises((OutputError, KeyboardInterrupt)):
        write(output, files([GROUP]))
    assert in_folder(tmp_path) == before
