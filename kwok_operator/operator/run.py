"""`kwok-operator run`: makes the connection, the clients and the parts, and lets kopf run them.

process.py has the order of start and stop, handlers.py the reaction to each event, assembly.py the
wiring of the parts.
"""

from contextlib import AsyncExitStack

from kwok_operator.clusterapi.discovery import namespace_watched
from kwok_operator.clusterapi.settings import ClusterApiSettings, Mode
from kwok_operator.kube import tlsbuffers
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection, own_namespace
from kwok_operator.observability.metrics import Metrics
from kwok_operator.operator import handlers, preflight
from kwok_operator.operator.assembly import Assembly
from kwok_operator.operator.election import LeaseTerms
from kwok_operator.operator.leadership import Elector, Fence, make_identity
from kwok_operator.operator.process import Operator
from kwok_operator.settings import RunSettings

CONNECTIONS = 32
"""The most connections of a client. Those for writes of nodes come on top, so that other requests
don't wait for these."""


async def run(settings: RunSettings, clusterapi: ClusterApiSettings | None = None) -> None:
    """Runs the operator until a signal; raises KwokOperatorError if it can't start or go on."""
    tlsbuffers.make_small()
    connection = await load_connection(kubeconfig=settings.kubeconfig, context=settings.context)
    namespace = settings.namespace or own_namespace(connection)
    metrics = Metrics()
    fence = Fence()
    check = fence.check if settings.leader_elect else None
    async with AsyncExitStack() as stack:
        # The third client is for the Lease and the first checks: the fence doesn't stop it, and it
        # waits for no request of the others.
        groups, nodes, own = [
            await stack.enter_async_context(
                KubeClient(
                    connection=connection, observe=metrics.request, fence=each, max_connections=most
                )
            )
            for each, most in (
                (check, CONNECTIONS),
                (check, CONNECTIONS + settings.node_concurrency),
                (None, CONNECTIONS),
            )
        ]
        parts = Assembly(settings, metrics, namespace=namespace, groups=groups, nodes=nodes)
        if clusterapi is not None:
            # Imported late, as in assembly.py.
            from kwok_operator.clusterapi.management import management_connection

            management = await management_connection(clusterapi, workload=connection)
            client = await stack.enter_async_context(
                KubeClient(connection=management, observe=metrics.request)
            )
            parts.set_up_clusterapi(clusterapi, client)
            if clusterapi.mode is Mode.MIRROR:
                place = namespace_watched(clusterapi.discoveries)
                group = clusterapi.keys.group
                await preflight.check_reading(client, group=group, namespace=place)
        elector = None
        if settings.leader_elect:
            elector = _make_elector(settings, client=own, namespace=namespace, fence=fence)
        operator = Operator(settings, connection, metrics, client=own, parts=parts, elector=elector)
        await handlers.run_until_ended(operator)


def _make_elector(
    settings: RunSettings, *, client: KubeClient, namespace: str, fence: Fence
) -> Elector:
    return Elector(
        client=client,
        namespace=settings.leader_elect_resource_namespace or namespace,
        name=settings.leader_elect_resource_name,
        identity=make_identity(),
        terms=LeaseTerms(
            lease_duration=settings.leader_elect_lease_duration,
            renew_deadline=settings.leader_elect_renew_deadline,
            retry_period=settings.leader_elect_retry_period,
        ),
        fence=fence,
    )
