"""`kwok-operator why POD --context NAME`: explains a pod of a live cluster. Reads, never writes."""

import argparse
import asyncio
import sys

from kwok_operator.causes.live import LiveAnswer, NoSuchPodError, explain_live
from kwok_operator.causes.words import chain_lines
from kwok_operator.errors import TERMINAL_LINE, KwokOperatorError, SettingsError, one_line
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.settings import is_namespace_name


def run_live(pod: str, flags: argparse.Namespace) -> int:
    """Prints why a pod waits, given as NAME or NAMESPACE/NAME, and returns the exit code. Raises
    SettingsError for an invalid name, and ConnectionConfigError.
    """
    namespace, slash, name = pod.rpartition("/")
    if slash and flags.namespace not in (None, namespace):
        raise SettingsError(f"why: {pod!r} is in another namespace than --namespace: give one only")
    namespace = namespace if slash else flags.namespace or ""
    if not is_object_name(name) or ((slash or namespace) and not is_namespace_name(namespace)):
        raise SettingsError(f"why: {pod!r} is no pod: give it as NAME or NAMESPACE/NAME")
    try:
        answer = asyncio.run(_answer(name, namespace, flags))
    except NoSuchPodError as error:
        print(f"kwok-operator: {error}", file=sys.stderr)
        return 1
    except KwokOperatorError as error:
        print(f"kwok-operator: {error}", file=sys.stderr)
        return 2
    for line in chain_lines(answer.chain):
        print(line)
    if answer.live_lines:
        print("now:")
    for line in answer.live_lines:
        indent = len(line) - len(line.lstrip(" "))
        print(f"  {' ' * indent}{one_line(line, limit=TERMINAL_LINE)}")
    return 0


async def _answer(name: str, namespace: str, flags: argparse.Namespace) -> LiveAnswer:
    connection = await load_connection(kubeconfig=flags.kubeconfig, context=flags.context)
    # Compressed, as the cluster may be far away: then the network is slower than the API server's
    # gzip.
    async with KubeClient(connection=connection, compressed=True) as client:
        return await explain_live(client, namespace=namespace or connection.namespace, name=name)
