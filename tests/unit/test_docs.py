"""That README and docs lead where they say."""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from kwok_operator.cli.comparing import EXIT_CODES
from kwok_operator.cli.main import main
from kwok_operator.constants import KIND, POOL_KIND
from kwok_operator.schema.check import check_group, check_pool

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n(?:\n(?= {4}))?)+")
_SPAN = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"^#{1,6} +(.+?)$", re.MULTILINE)
_MAKE = re.compile(r"(?:^|[;&|] *|\s)make ((?:[a-z][a-z0-9-]*[ ]?)+)")
_PATH = re.compile(r"(?<![\w/.~-])(?:deploy|crds|hack|tests|docs|kwok_operator)/[\w./*-]*")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_in(page: Path) -> Iterator[str]:
    """What stands in code: blocks with their lines joined where they end in a backslash, spans."""
    text = text_of(page)
    for _, _, block in _FENCE.findall(text):
        yield block.replace("\\\n", " ")
    text = _FENCE.sub("", text)
    for block in _INDENTED.findall(text):
        yield block.replace("\\\n", " ")
    for span in _SPAN.findall(_INDENTED.sub("", text)):
        yield span.replace("\n", " ")


def links_in(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Each link as it is written, the file it leads to, and the anchor."""
    for link in _LINK.findall(_FENCE.sub("", text_of(page))):
        if "://" not in link and not link.startswith("mailto:"):
            path, _, anchor = link.partition("#")
            yield link, (page.parent / path).resolve() if path else page, anchor


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """GitHub's: lower case, hyphens for spaces, no other signs; the second of a name has -1."""
    found: dict[str, int] = {}
    anchors = set()
    for heading in _HEADING.findall(_FENCE.sub("", text_of(page))):
        plain = _LINK.sub(lambda link: link.group()[1:].partition("](")[0], heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        seen = found.get(anchor, 0)
        found[anchor] = seen + 1
        anchors.add(f"{anchor}-{seen}" if seen else anchor)
    return frozenset(anchors)


def of_pages(found: Callable[[Path], Iterable[str]]) -> list[str]:
    """What is found in any page, each with the page that it stands in."""
    return [f"{page.relative_to(ROOT)}: {what}" for page in PAGES for what in found(page)]


def test_links_lead_to_files_and_headings() -> None:
    def astray(page: Path) -> Iterator[str]:
        for link, target, anchor in links_in(page):
            is_page = anchor and target.suffix == ".md"
            if not target.exists() or (is_page and anchor not in anchors_of(target)):
                yield link

    assert of_pages(astray) == []


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, to_look_at = {README}, [README]
    while to_look_at:
        for _, target, _ in links_in(to_look_at.pop()):
            pages = [target] if target.is_file() else target.glob("*.md")
            new = {p for p in pages if p.suffix == ".md" and ROOT in p.parents} - reached
            reached |= new
            to_look_at += new
    assert set(PAGES) - reached == set()


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    def named(page: Path) -> set[str]:
        runs = [run for code in code_in(page) for run in _MAKE.findall(code)]
        return {word for run in runs for word in run.split()}

    assert of_pages(lambda page: named(page) - targets) == []
    assert any(named(page) for page in PAGES)


def test_paths_of_this_repository_exist() -> None:
    def missing(page: Path) -> Iterator[str]:
        named = {path.rstrip(".") for code in code_in(page) for path in _PATH.findall(code)}
        return (path for path in named if not list(ROOT.glob(path.rstrip("/"))))

    assert of_pages(missing) == []


def test_a_kustomization_is_applied_as_one() -> None:
    """With -f, kubectl takes kustomization.yaml for an object, and fails."""

    def wrong(page: Path) -> Iterator[str]:
        files = {name for code in code_in(page) for name in re.findall(r" -f ([\w./-]+)", code)}
        return (name for name in files if (ROOT / name / "kustomization.yaml").exists())

    assert of_pages(wrong) == []


def commands() -> list[str]:
    """All that there are: the command line names them where one is wrong."""
    with redirect_stderr(io.StringIO()) as said, pytest.raises(SystemExit):
        main(["none"])
    return re.findall(r"[a-z][a-z-]+", said.getvalue().partition("choose from")[2])


def test_flags_after_a_command_exist(capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, set[str]] = {}
    for command in commands():
        with pytest.raises(SystemExit):
            main([command, "--help"])
        known[command] = set(_FLAG.findall(capsys.readouterr().out))
    ours = re.compile(rf"kwok-operator ({'|'.join(known)})\b(.*)")

    def unknown(page: Path) -> Iterator[str]:
        for code in code_in(page):
            for command, rest in ours.findall(code):
                # What follows a comment, a pipe or another command is not ours.
                arguments = re.split(r"[|;&#]|--\s|\$\(", rest)[0]
                yield from set(_FLAG.findall(arguments)) - known[command]

    assert of_pages(unknown) == []
    assert {"run", "convert", "uninstall"} <= known.keys()


def test_pods_do_not_wait_for_a_node_that_is_gone() -> None:
    def waiting(page: Path) -> Iterator[str]:
        for code in code_in(page):
            if code.count("image: none") > code.count("terminationGracePeriodSeconds: 0"):
                yield code

    assert of_pages(waiting) == []


def test_yaml_is_yaml_and_groups_are_groups() -> None:
    checks = {KIND: check_group, POOL_KIND: check_pool}

    def problems(page: Path) -> Iterator[str]:
        for _, language, block in _FENCE.findall(text_of(page)):
            if language != "yaml":
                continue
            for document in yaml.safe_load_all(dedent(block)):
                kind = document.get("kind") if isinstance(document, dict) else None
                if kind in checks:
                    yield from map(str, checks[kind](_without_dots(document)))

    assert of_pages(problems) == []


def _without_dots(document: Any) -> Any:
    """`...` stands for what a reader knows."""
    if isinstance(document, dict):
        return {key: _without_dots(value) for key, value in document.items() if value != "..."}
    return document


def test_exit_codes_of_a_comparison_are_those_of_its_help() -> None:
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    assert f"| Exit code | Meaning |\n|---|---|\n{rows}\n" in text_of(ROOT / "docs/compare.md")
