"""`kwok-operator explain-pod NAMESPACE/NAME`: predicts what a pod will do from its profile.

Reads the pod, the profiles and the namespace from a cluster, or workloads and profiles from files;
writes nothing. The prediction itself is made in other modules, which are pure.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kwok_operator.cli.validate import complain, complain_of, read_texts, table
from kwok_operator.constants import PROFILES_PATH
from kwok_operator.errors import (
    ConnectionConfigError,
    KwokOperatorError,
    NotFoundError,
    SettingsError,
    one_line,
)
from kwok_operator.formats.words import counted
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.offline.files import Files
from kwok_operator.offline.podprofiles import PodForecast, forecast_pods
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.explain import holding, lines
from kwok_operator.podprofiles.selectors import Pod, labels_match
from kwok_operator.settings import add_cluster_flags

_HELP: Final = """\
Predicts what a pod will do by its KwokPodProfile: when it starts, is Ready, ends, fails, and how.

The prediction uses the same draws as kwok. Times count from when the pod is bound to a node; those
in the cluster have whole seconds.

With --file it needs no cluster: it prints a table for the Pods, StatefulSets and indexed Jobs in
the files, or lines for the one pod that is named. A pod of a Job is named NAMESPACE/JOB-INDEX.

Exit code 0: printed; 1: the pod doesn't exist, no profile matches it, or something is wrong; 2: a
file can't be read, or no cluster.

  kwok-operator explain-pod default/web-0
  kwok-operator explain-pod --file=batch.yaml
  kwok-operator explain-pod --file=batch.yaml default/batch-7
"""


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declares the command `explain-pod`."""
    parser = command("explain-pod", run, "predict what a pod of a profile will do", _HELP)
    parser.add_argument("pod", metavar="NAMESPACE/NAME", nargs="?", help="the pod")
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="file, directory, - for stdin: read these, no cluster; may be given more than once",
    )
    add_cluster_flags(parser.add_argument_group("which cluster"))


def run(flags: argparse.Namespace) -> int:
    """Prints the prediction, and returns the exit code. Raises SettingsError for an invalid name of
    a pod.
    """
    if flags.file and flags.pod is None:
        return _from_files(flags.file, None)
    namespace, slash, name = (flags.pod or "").rpartition("/")
    if not slash or not is_object_name(namespace) or not is_object_name(name):
        raise SettingsError(f"explain-pod: {flags.pod!r} is no pod: give it as NAMESPACE/NAME")
    if flags.file:
        return _from_files(flags.file, flags.pod)
    try:
        forecast = asyncio.run(_explained(namespace, name, flags=flags))
    except ConnectionConfigError:
        raise
    except KwokOperatorError as error:
        print(f"kwok-operator: {error}", file=sys.stderr)
        return 1
    for line in forecast:
        print(line)
    return 0


def _from_files(names: list[str], only: str | None) -> int:
    texts = read_texts(names)
    if texts is None:
        return 2
    forecast = forecast_pods(Files.read(texts), only=only)
    for line in forecast.lines if only else table(forecast.rows):
        print(line)
    complain_of(forecast.findings, forecast.notes)
    if only and not forecast.rows:
        complain(f"kwok-operator: no pod {only} with a profile is in these files")
    elif not only:
        complain(_summary(forecast))
    return 0 if forecast.rows and not forecast.findings else 1


def _summary(forecast: PodForecast) -> str:
    """Returns a line that says how many pods and attempts end in which way."""
    ends = Counter(row.then.partition(",")[0] for row in forecast.rows)
    pods, lives = len({row.pod for row in forecast.rows}), len(forecast.rows)
    attempts = f", {counted(lives, 'attempt')}" if lives > pods else ""
    return f"{counted(pods, 'pod')}{attempts}: " + ", ".join(
        f"{number:,} {end}" for end, number in sorted(ends.items())
    )


async def _explained(namespace: str, name: str, *, flags: argparse.Namespace) -> list[str]:
    connection = await load_connection(kubeconfig=flags.kubeconfig, context=flags.context)
    async with KubeClient(connection=connection) as client:
        pod = Pod.of(await client.get_json(f"/api/v1/namespaces/{namespace}/pods/{name}"))
        labels = await _labels(namespace, client=client)
        try:
            stored = (await client.get_json(PROFILES_PATH))["items"]
        except NotFoundError as error:
            raise KwokOperatorError(
                "reading KwokPodProfiles: this cluster has no CRD for them: kubectl apply -k crds"
            ) from error
    profile = holding(pod, list(_profiles(stored, namespace, labels)))
    if profile is None:
        raise KwokOperatorError(f"explaining pod {namespace}/{name}: no KwokPodProfile is for it")
    for problem in _not_played(stored, profile.name):
        print(f"kwok-operator: KwokPodProfile {profile.name}: {problem}", file=sys.stderr)
    return lines(profile, pod)


def _not_played(stored: list[dict[str, Any]], profile: str) -> Iterator[str]:
    """Yields why kwok may not do what was predicted: the profile's Stages aren't up to date, or one
    of its conditions isn't True."""
    (selected,) = (each for each in stored if each["metadata"]["name"] == profile)
    status = selected.get("status") or {}
    if status.get("observedGeneration") != selected["metadata"].get("generation"):
        yield "the operator has not brought its Stages yet; is it running?"
    for condition in status.get("conditions") or ():
        if condition["type"] != "Overlapping" and condition["status"] != "True":
            yield f"{condition['type']} is {condition['status']}: {condition['message']}"


async def _labels(namespace: str, *, client: KubeClient) -> Mapping[str, str]:
    body = await client.get_json(f"/api/v1/namespaces/{namespace}")
    return body["metadata"].get("labels") or {}


def _profiles(
    stored: list[dict[str, Any]], namespace: str, labels: Mapping[str, str]
) -> Iterator[Profile]:
    """Yields the profiles that are valid. Others are left out, as the operator can't read them
    either.
    """
    for each in stored:
        name = each["metadata"]["name"]
        try:
            spec = KwokPodProfileSpec.model_validate(each.get("spec") or {})
        except ValueError as error:
            why = one_line(error, limit=300)
            print(f"kwok-operator: KwokPodProfile {name} is left out: {why}", file=sys.stderr)
            continue
        selector = spec.namespace_selector
        here = [namespace] if selector and labels_match(selector, labels) else []
        yield Profile.of(name, spec, namespaces=None if selector is None else here)
