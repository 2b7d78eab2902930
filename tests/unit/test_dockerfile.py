"""The Dockerfile, read: what it is made of, and what is in the result."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from hack.image.dockerfile import Instruction, read_stages
from kwok_operator.cli.install_settings import DIRECTORY, overlays

ROOT = Path(__file__).parents[2]
BUILD, FINAL = read_stages((ROOT / "Dockerfile").read_text())
LABEL = "org.opencontainers.image."


def test_both_stages_have_one_base_of_an_exact_version() -> None:
    assert BUILD.base == FINAL.base
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", BUILD.base)


def test_the_base_is_a_python_that_the_project_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    minor = ".".join(BUILD.base.removeprefix("python:").split(".")[:2])
    assert f"Programming Language :: Python :: {minor}" in project["classifiers"]


def test_nothing_is_downloaded_but_by_the_step_that_pins() -> None:
    assert [step.text for step in BUILD.all("RUN")] == ["sh hack/image/build.sh /opt/kwok-operator"]
    assert BUILD.all("ADD") == FINAL.all("ADD") == []
    for step in FINAL.all("RUN"):
        assert not re.search(r"apt|curl|wget|pip install", step.text)


def test_what_is_copied_is_what_dockerignore_lets_in() -> None:
    copied = {path for each in BUILD.all("COPY") for path in each.words()[:-1]}
    everything, *rules = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert everything == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == copied
    assert all((ROOT / path).exists() for path in copied)


def test_the_result_has_the_environment_and_no_installer() -> None:
    (copied,) = FINAL.all("COPY")
    (step,) = BUILD.all("RUN")
    destination = step.words()[-1]
    assert copied.words() == ["--from=build", destination, destination]
    assert f"PATH={destination}/bin:$PATH" in FINAL.last("ENV").words()
    (removal,) = FINAL.all("RUN")
    assert re.match(r"python -m pip uninstall --yes .*\bpip\b", removal.text)
    assert "rm -rf /usr/local/lib/python3.*/ensurepip" in removal.text


@pytest.mark.parametrize("overlay", overlays())
def test_the_user_is_that_of_the_manifests(overlay: str) -> None:
    user, _, group = FINAL.last("USER").text.partition(":")
    assert int(user) >= 10_000, "no user of a node"
    objects = yaml.safe_load_all((DIRECTORY / f"{overlay}.yaml").read_text())
    pods = [o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment"]
    contexts = [pod["securityContext"] for pod in pods]
    assert {(c["runAsUser"], c["runAsGroup"]) for c in contexts} == {(int(user), int(group))}


def test_the_entry_point_is_the_projects_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert FINAL.last("ENTRYPOINT").words() == list(project["scripts"])
    assert FINAL.last("EXPOSE").text == "8080"


def test_labels_describe_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = dict(word.split("=", 1) for word in FINAL.last("LABEL").words())
    assert labels[f"{LABEL}title"] == project["name"]
    assert labels[f"{LABEL}licenses"] == project["license"]
    assert labels[f"{LABEL}base.name"] == FINAL.base
    assert {f"{LABEL}version", f"{LABEL}revision", f"{LABEL}description"} <= labels.keys()


def test_a_dockerfile_is_read_as_an_engine_would() -> None:
    stages = read_stages(
        "# syntax\nARG TAG=1\nFROM a:${TAG} AS b\nRUN one \\\n    two\n# no\n"
        'FROM c\nARG TAG\nLABEL x="${TAG} y" z=$TAG\nENTRYPOINT ["p", "q r"]\n'
    )
    assert [stage.base for stage in stages] == ["a:1", "c"]
    assert stages[0].instructions == [Instruction("RUN", "one two")]
    assert stages[1].last("LABEL").words() == ["x=1 y", "z=$TAG"]
    assert stages[1].last("ENTRYPOINT").words() == ["p", "q r"]
