"""How the e2e tests talk to a cluster: kubectl as people use it, and a poll with a memory.

`Kubectl` runs one command with one kubeconfig and gives back what it prints; a refusal is a
`KubectlError` with the command and what kubectl said. What tests only want to read comes without a
process, from `api`. `eventually` asks again until the answer fits, and on time-out tells the last
one it got.

Nothing here knows groups or the operator.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kwok_operator.controlplane import kubectl
from kwok_operator.controlplane.kubectl import KubectlError
from kwok_operator.formats.manifests import as_stream
from tests.e2e.api import Api, ApiError, Refused, path_of

T = TypeVar("T")

Manifest = str | Mapping[str, Any]
"""YAML or JSON text, or an object."""
PATIENCE = 300.0
"""Seconds after which what a test waits for never comes, however slow the machine is."""


class Kubectl(kubectl.Kubectl):
    """kubectl, with what tests ask of it."""

    @functools.cached_property
    def api(self) -> Api:
        """The same user, without a process for each question."""
        return Api(self.kubeconfig)

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        """What the command prints with `-o json`, read; simple questions need no kubectl."""
        if (question := _question(arguments)) is None:
            return json.loads(self(*arguments, "--output=json", stdin=stdin or ""))
        try:
            return _answer(self.api, question)
        except ApiError as error:
            said = str(error)
            if isinstance(error, Refused):
                said = f"Error from server ({error.reason}): {error.message}"
            raise KubectlError(said, said) from error

    def apply(self, manifest: Manifest, *options: str) -> str:
        return self("apply", "--filename=-", *options, stdin=as_text(manifest))

    def fails(self, *arguments: str, stdin: Manifest | None = None) -> str:
        """What a command that is refused prints on stderr."""
        text = "" if stdin is None else as_text(stdin)
        try:
            output = self(*arguments, stdin=text)
        except KubectlError as err:
            return err.stderr
        raise AssertionError(f"`kubectl {' '.join(arguments)}` was not refused:\n{output}")


def as_text(manifest: Manifest) -> str:
    if isinstance(manifest, str):
        return manifest
    return as_stream(manifest["items"] if manifest.get("kind") == "List" else [manifest])


def eventually(
    read: Callable[[], T],
    until: Callable[[T], object] = bool,
    *,
    describe: str,
    timeout: float = PATIENCE,
    interval: float = 0.1,
) -> T:
    """The first answer of `read` that fits `until`; without `until`, the first that is true.

    What isn't there yet is no failure: a failing request, key or assertion is asked again. At most
    half of the time is spent on reading, as the processors are needed for what is waited for.
    """
    deadline = time.monotonic() + timeout
    while True:
        begun = time.monotonic()
        try:
            answer = read()
            if until(answer):
                return answer
            last = repr(answer)
        except (ApiError, AssertionError, KubectlError, LookupError) as err:
            last = f"{type(err).__name__}: {err}"
        if (now := time.monotonic()) >= deadline:
            raise AssertionError(f"waited {timeout} s until {describe}; last seen: {last}")
        time.sleep(max(interval, now - begun))


def _get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("verb")
    parser.add_argument("kind")
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("-l", "--selector", default="")
    parser.add_argument("--field-selector", default="")
    parser.add_argument("-n", "--namespace", default="default")
    parser.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("--show-managed-fields", action="store_true")
    parser.add_argument("--subresource", default="")
    return parser


_GET = _get_parser()


def _question(arguments: Sequence[str]) -> argparse.Namespace | None:
    """A get that `_answer` can answer; None for anything else."""
    if arguments[0] != "get" or len(arguments) == 1 or arguments[1].startswith("-"):
        return None
    question, more = _GET.parse_known_args(arguments)
    namespace = None if question.all_namespaces else question.namespace
    try:
        question.path = path_of(question.kind, namespace=namespace, name=question.name)
    except LookupError:
        return None
    return None if more else question


def _answer(api: Api, question: argparse.Namespace) -> Any:
    """As kubectl prints it: items that say what they are, and nothing of who wrote which field."""
    path = f"{question.path}/{question.subresource}" if question.subresource else question.path
    selectors = {"labelSelector": question.selector, "fieldSelector": question.field_selector}
    found = api.get(path, **{key: value for key, value in selectors.items() if value})
    items = [found] if question.name else found["items"]
    kind = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
    for item in items:
        if not question.show_managed_fields:
            item["metadata"].pop("managedFields", None)
    return found if question.name else {**found, "items": [kind | item for item in items]}
