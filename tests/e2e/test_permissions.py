"""Least privilege, of the operator and of the shim as deployed."""

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from kwok_operator.constants import (
    API_GROUP,
    API_VERSION,
    GROUPS_PATH,
    NODES_PATH,
    PROFILE_KIND,
)
from kwok_operator.controlplane.kubectl import KubectlError
from kwok_operator.errors import PreflightError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.operator.preflight import (
    NEEDED,
    NEEDED_FOR_ELECTION,
    check_permissions,
)
from kwok_operator.settings import DEFAULT_LEASE_NAME
from tests.e2e.autoscaler import Autoscaler, Shim
from tests.e2e.clouds import condition_of
from tests.e2e.grants import (
    AUDIT_POLICY,
    JSON,
    MERGE_PATCH,
    Caller,
    Grant,
    Request,
    granted,
    make_admin,
    requests_by_grant,
)
from tests.e2e.groups import (
    apply_group,
    condition,
    events_of,
    group_manifest,
    names_of,
    patch_group,
    pool_manifest,
    scale,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, as_text, eventually
from tests.e2e.own_cluster import OwnCluster, own_cluster
from tests.e2e.rights import NAMESPACE, OPERATOR, SHIM, kubeconfig_of, user_name
from tests.e2e.sources import CONFIG, Provider, template

GRANTS = granted()
ADMISSION = "admissionregistration.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
GROUPS = sorted({grant.group for grant in GRANTS} | {"rbac.authorization.k8s.io"})
LEADER = "--leader-elect"
POOL = "example.com/pool"
DELETE_PODS = [g for g in GRANTS if g.resource == "pods"]
SECRETS = [g for g in GRANTS if g.resource == "secrets"]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """A cluster that writes down what the two accounts ask for."""
    directory = tmp_path_factory.mktemp("permissions")
    policy = directory / "audit.yaml"
    policy.write_text(json.dumps(AUDIT_POLICY))
    with own_cluster(
        "rights", directory=directory, extra_args=[f"--kube-audit-policy={policy}"]
    ) as own:
        (directory / "shim.kubeconfig").write_text(kubeconfig_of(own.kubectl, SHIM))
        yield own


@pytest.fixture(scope="module")
def kubectl(own: OwnCluster) -> Kubectl:
    return own.kubectl


@pytest.fixture(scope="module")
def kubeconfigs(own: OwnCluster) -> dict[str, Path]:
    file = own.harness.kubeconfig
    return {OPERATOR: file, SHIM: file.with_name("shim.kubeconfig")}


@pytest.fixture(scope="module")
def admin(own: OwnCluster) -> Caller:
    return make_admin(own.kubectl)


@pytest.fixture(scope="module")
def callers(kubeconfigs: dict[str, Path]) -> dict[str, Caller]:
    return {account: Caller(file.read_text()) for account, file in kubeconfigs.items()}


@pytest.fixture(scope="module")
def used(own: OwnCluster, kubeconfigs: dict[str, Path]) -> dict[Grant, Request]:
    """What the operator and the shim have made use of in a life with everything in it."""
    own.harness.start(LEADER)
    live_with_a_provider_config(own.kubectl)
    live_with_a_pool(own.kubectl)
    live_with_a_profile(own.kubectl)
    live_with_a_boot(own.kubectl)
    live_with_groups(own.kubectl)
    live_with_cluster_autoscaler(own.kubectl, kubeconfigs[SHIM])
    own.harness.stop()
    assert own.cluster.directory is not None
    log = own.cluster.directory / "logs" / "audit.log"

    def read() -> dict[Grant, Request]:
        return requests_by_grant(log.read_text())

    with suppress(AssertionError):  # the log is written a moment later; what lacks is told there
        eventually(read, lambda found: set(GRANTS) <= found.keys(), describe="all")
    return read()


def live_with_a_provider_config(kubectl: Kubectl) -> None:
    """A group is derived and removed again; the same mistake is made and told twice."""
    provider = Provider(kubectl)
    provider.templates(*(template(name, labels={POOL: name}) for name in ("small", "large")))
    provider.configure_for(POOL, more="prune: true\n")
    eventually(lambda: kubectl("get", "kng", "small", "large"), describe="groups are derived")
    provider.templates(template("small", labels={POOL: "small"}))
    eventually(
        lambda: "large" not in kubectl("get", "kng", "--output=name"), describe="one is removed"
    )
    for _ in range(2):
        with told_once_more(kubectl, "Warning"):
            provider.configure("apiVersion: v2\n")
        with told_once_more(kubectl, "Normal"):
            provider.configure_for(POOL)
    provider.remove(CONFIG)


@contextmanager
def told_once_more(kubectl: Kubectl, kind: str) -> Iterator[None]:
    """Returns when something of that kind has been said of the provider config."""

    def count() -> int:
        selector = f"--field-selector=involvedObject.name={CONFIG},type={kind}"
        items = kubectl.json("get", "events", f"--namespace={NAMESPACE}", selector)["items"]
        return sum(event["count"] for event in items)

    before = count()
    yield
    eventually(count, lambda n: n > before, describe=f"a {kind} is told")


def live_with_a_pool(kubectl: Kubectl) -> None:
    """Its status is written."""
    kubectl.apply(pool_manifest("zone", instances=1))
    eventually(lambda: kubectl.json("get", "kpool", "zone")["status"], describe="it has a status")


def live_with_a_profile(kubectl: Kubectl) -> None:
    """Its status is written: without the component it can do no more."""
    kubectl.apply(
        {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": PROFILE_KIND,
            "metadata": {"name": "slow"},
            "spec": {"start": {"delay": {"fixed": "3s"}}},
        }
    )
    status = eventually(
        lambda: kubectl.json("get", "kpp", "slow").get("status"), describe="it has a status"
    )
    assert condition_of(status, "StagesPresent")["reason"] == "NotAllowed"
    kubectl("delete", "kpp", "slow")


def live_with_a_boot(kubectl: Kubectl) -> None:
    """Whether there is a Stage that holds nodes NotReady is looked for."""
    apply_group(
        kubectl,
        "boots",
        targetSize=1,
        template={"shape": {"cpu": 4}},
        cloud={"readinessDelay": {"fixed": "3s"}},
    )
    wait_ready(kubectl, "boots")
    assert condition(kubectl, "boots", "CloudSimulated")["reason"] == "NotHeld"
    kubectl("delete", "kng", "boots")


def live_with_groups(kubectl: Kubectl) -> None:
    """Nodes come, are changed and go with their pods; a kubeconfig is asked for; it repeats."""
    group = {"updateStrategy": {"type": "InPlace"}, "scaleDown": {"pods": "Delete"}}
    apply_group(kubectl, "web", targetSize=1, template={"shape": {"cpu": 4}}, **group)
    wait_ready(kubectl, "web")
    (node,) = names_of(kubectl, "web")
    kubectl.apply(pod_on(node))
    patch_group(kubectl, "web", template={"shape": {"cpu": 8, "labels": {"tier": "x"}}})
    eventually(
        lambda: kubectl.json("get", "node", node),
        lambda n: n["metadata"]["labels"].get("tier") == "x" and n["status"]["capacity"]["cpu"],
        describe="the node is changed",
    )
    wait_ready(kubectl, "web")
    for size in (0, 1, 0, 1, 0):
        scale(kubectl, "web", size)
        eventually(
            lambda size=size: len(names_of(kubectl, "web")) == size,  # type: ignore[misc]
            describe=f"there are {size} nodes",
        )
        wait_ready(kubectl, "web")
    eventually(lambda: pods(kubectl) == [], describe="the pod has gone with its node")
    far = {"from": {"nodes": {"name": "far", "cluster": {"secretName": "far"}}}}
    apply_group(kubectl, "far", targetSize=0, template=far)
    eventually(
        lambda: "does not exist" in condition(kubectl, "far", "TemplateResolved")["message"],
        describe="the Secret is looked for",
    )
    kubectl("delete", "kng", "far", "web")


def live_with_cluster_autoscaler(kubectl: Kubectl, kubeconfig: Path) -> None:
    """A group is scaled by the shim, and the API server has something against it once."""
    apply_group(kubectl, "scaled", targetSize=0, autoscaling={"maxSize": 9})
    shim = Shim(kubeconfig=kubeconfig, directory=kubeconfig.parent)
    shim.start()
    try:
        client = Autoscaler(shim.socket)
        eventually(lambda: client.knows("scaled"), describe="the shim serves the group")
        client.increase("scaled", 1)
        with nobody_may_scale(kubectl, "scaled"), pytest.raises(grpc.RpcError):
            client.increase("scaled", 1)
        client.close()
    finally:
        shim.stop()
    kubectl("delete", "kng", "scaled")


@contextmanager
def nobody_may_scale(kubectl: Kubectl, group: str) -> Iterator[None]:
    """The API server calls each new target invalid, which the shim can't know beforehand."""
    name = {"metadata": {"name": "nobody-may-scale"}, "apiVersion": f"{ADMISSION}/v1"}
    rule = {
        "apiGroups": ["kwok-operator.io"],
        "apiVersions": ["*"],
        "resources": ["kwoknodegroups"],
        "operations": ["UPDATE"],
        "resourceNames": [group],
    }
    unchanged = "object.spec.targetSize == oldObject.spec.targetSize"
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": unchanged, "message": "not now"}],
    }
    binding = {"policyName": "nobody-may-scale", "validationActions": ["Deny"]}
    kubectl.apply({**name, "kind": "ValidatingAdmissionPolicy", "spec": policy})
    kubectl.apply({**name, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    try:
        change = as_text({"spec": {"targetSize": 5}})
        arguments = ("patch", "kng", group, "--type=merge", "--dry-run=server", f"--patch={change}")
        eventually(
            lambda: "not now" in kubectl.fails(*arguments), describe="the policy is in force"
        )
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            kubectl("delete", kind, "nobody-may-scale")


def pod_on(node: str) -> dict[str, Any]:
    """It runs there, with nobody to make it anew."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone", "namespace": "default"},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "pause:3.10"}],
        },
    }


def pods(kubectl: Kubectl) -> list[str]:
    return kubectl("get", "pods", "--namespace=default", "--output=name").split()


def test_no_right_is_idle(
    admin: Caller,
    callers: dict[str, Caller],
    kubeconfigs: dict[str, Path],
    used: dict[Grant, Request],
) -> None:
    """Each was made use of; without it that very request is refused, and with it again it isn't."""
    assert [str(grant) for grant in GRANTS if grant not in used] == []
    for grant in GRANTS:
        request, caller = used[grant], callers[grant.account]
        with grant.taken_away(admin):
            _, answer = eventually(
                partial(request.repeat, caller), lambda a: a[0] == 403, describe=f"no {grant}"
            )
            assert f'cannot {grant.verb} resource "{grant.resource}"' in answer["message"]
            if is_needed_at_start(grant):
                missing = why_it_does_not_start(kubeconfigs[OPERATOR])
                assert f"may not: {grant.verb} {grant.resource.partition('/')[0]}" in missing
        eventually(
            partial(request.repeat, caller), lambda a: a[0] != 403, describe=f"{grant} is back"
        )
    with ExitStack() as stack:
        for grant in GRANTS:
            if grant.account == OPERATOR and not is_needed_at_start(grant):
                stack.enter_context(grant.taken_away(admin))
        assert why_it_does_not_start(kubeconfigs[OPERATOR]) == "", "it starts without the others"


def is_needed_at_start(grant: Grant) -> bool:
    here = grant.account == OPERATOR and grant.role == OPERATOR
    return here and (grant.group, grant.resource, grant.verb) in {*NEEDED, *NEEDED_FOR_ELECTION}


def why_it_does_not_start(kubeconfig: Path) -> str:
    async def check() -> str:
        connection = await load_connection(kubeconfig=str(kubeconfig), environ={})
        async with KubeClient(connection=connection) as client:
            try:
                lease = (NAMESPACE, DEFAULT_LEASE_NAME)
                await check_permissions(client, namespace=NAMESPACE, lease=lease)
            except PreflightError as error:
                return str(error)
            return ""

    return asyncio.run(check())


def test_nothing_is_used_that_is_not_granted(used: dict[Grant, Request]) -> None:
    """But for what every account may do: ask what it may do, and which APIs there are."""
    beyond = [g for g in used if g not in GRANTS and g.group != "authorization.k8s.io"]
    assert beyond == []


REFUSED = {
    OPERATOR: (
        ("list", "secrets", NAMESPACE),
        ("watch", "secrets", NAMESPACE),
        ("get", "secrets", "kube-system"),
        ("get", "configmaps", "kube-system"),
        ("create", "pods", "default"),
        ("create", "serviceaccounts/token", NAMESPACE),
        ("update", "leases", NAMESPACE),  # without a name: of any
        ("update", "leases", "kube-node-lease"),
        ("create", "pods/exec", "default"),
        ("create", "clusterrolebindings", "default"),
        ("impersonate", "users", "default"),
        ("patch", "customresourcedefinitions", "default"),
        ("patch", "kwokcapacitypools", "default"),
        ("delete", "kwokcapacitypools", "default"),
        ("patch", "kwokpodprofiles", "default"),
        ("list", "stages", "default"),
        ("create", "stages", "default"),
        ("get", "nodes/proxy", "default"),
    ),
    SHIM: (
        ("create", "nodes", "default"),
        ("patch", "nodes", "default"),
        ("delete", "nodes", "default"),
        ("create", "kwoknodegroups", "default"),
        ("delete", "kwoknodegroups", "default"),
        ("patch", "kwoknodegroups/status", "default"),
        ("list", "kwokcapacitypools", "default"),
        ("get", "secrets", NAMESPACE),
        ("list", "pods", "default"),
    ),
}


def test_what_an_account_has_no_right_to(admin: Caller) -> None:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    cases = [(account, *what) for account, found in REFUSED.items() for what in found]
    allowed = []
    for (account, verb, resource, namespace), group in itertools.product(cases, GROUPS):
        name, _, subresource = resource.partition("/")
        what = {"verb": verb, "resource": name, "subresource": subresource, "namespace": namespace}
        spec = {"user": user_name(account), "resourceAttributes": {**what, "group": group}}
        _, answer = admin.send("POST", REVIEWS, {**review, "spec": spec})
        if answer["status"]["allowed"]:
            allowed.append((account, verb, resource, namespace, group))
    assert allowed == []


CHANGES: dict[str, dict[str, Any]] = {
    "its template": {"spec": {"template": {"shape": {"cpu": 64}}}},
    "a field that was not there": {"spec": {"paused": True}},
    "the consent to be scaled": {"spec": {"autoscaling": None}},
    "what becomes of pods": {"spec": {"scaleDown": {"pods": "Delete"}}},
    "the order": {"spec": {"scaleDown": {"order": "OldestFirst"}}},
    "all of scaleDown": {"spec": {"scaleDown": None}},
    "a label": {"metadata": {"labels": {"team": "other"}}},
    "all labels": {"metadata": {"labels": None}},
    "an annotation": {"metadata": {"annotations": {"a": "b"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/hold"]}},
    "an owner": {
        "metadata": {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"},
            ]
        }
    },
}


HELD = f"{GROUPS_PATH}/held"
DRY_RUN = f"{HELD}?dryRun=All"


@pytest.fixture
def held(kubectl: Kubectl, callers: dict[str, Caller]) -> Iterator[Caller]:
    """The shim's account, and a group with something of everything that nobody works on."""
    group = group_manifest(
        "held",
        targetSize=1,
        autoscaling={"maxSize": 9},
        scaleDown={"pods": "Leave"},
        template={"shape": {"cpu": 4}},
    )
    group["metadata"]["labels"] = {"team": "mine"}
    kubectl.apply(group)
    shim = callers[SHIM]
    eventually(
        lambda: changed(shim, {"spec": {"paused": True}}, uri=DRY_RUN)[0] != 200,
        describe="the policy is in force",
    )
    yield shim
    kubectl("delete", "kng", "held")


def changed(caller: Caller, change: dict[str, Any], *, uri: str = HELD) -> tuple[int, str]:
    """Status and message of the answer to a merge patch of the group."""
    status, answer = caller.send("PATCH", uri, change, content_type=MERGE_PATCH)
    return status, answer.get("message", "")


def test_the_shim_may_change_what_it_is_for_and_no_more(held: Caller) -> None:
    for what, change in CHANGES.items():
        mixed = {**change, "spec": {**change.get("spec", {}), "targetSize": 3}}
        for each in (change, mixed):
            code, said = changed(held, each, uri=DRY_RUN)
            assert code != 200 and "the shim may change " in said, f"{what}: {code} {said}"
    for victims in (["held-0-1"], [f"held-0-{serial:06}" for serial in range(20_000)], []):
        spec = {"targetSize": 3, "scaleDown": {"nodesToDelete": victims}}
        assert changed(held, {"spec": spec})[0] == 200


def test_whom_the_policy_holds(admin: Caller, kubectl: Kubectl, held: Caller) -> None:
    """By the name of the account, in whatever namespace; nobody else."""
    accounts = {
        "system:serviceaccount:elsewhere:kwok-operator-shim": True,
        "system:serviceaccount:kube-system:cluster-autoscaler": True,
        user_name(OPERATOR): False,
        "system:serviceaccount:kube-system:not-kwok-operator-shim": False,
        "kwok-operator-shim": False,
    }
    users = [f"--user={account}" for account in accounts]
    kubectl("create", "clusterrolebinding", "held-to-fields", f"--clusterrole={SHIM}", *users)
    patch = ("patch", "kng", "held", "--type=merge", '--patch={"spec":{"paused":true}}')

    def said(account: str) -> str:
        try:
            return kubectl(*patch, "--dry-run=server", f"--as={account}")
        except KubectlError as error:
            return error.stderr

    try:
        for account, is_held in accounts.items():
            words = "the shim may change" if is_held else "patched"
            # Until the binding is in force, everybody is refused in other words.
            eventually(partial(said, account), re.compile(words).search, describe=account)
    finally:
        kubectl("delete", "clusterrolebinding", "held-to-fields")


NODE = {"apiVersion": "v1", "kind": "Node"}
OURS, FAKE = "kwok-operator.io/node-group-uid", "kwok.x-k8s.io/node"


WRITES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a label": ("PATCH", "", {"metadata": {"labels": {"a": "b"}}}),
    "a taint": ("PATCH", "", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
    "its status": ("PATCH", "/status", {"status": {"addresses": []}}),
    "what would make it ours": ("PATCH", "", {"metadata": {"annotations": {OURS: "u"}}}),
    "itself": ("DELETE", "", {}),
}


def test_a_real_node_is_not_the_operators_to_change(
    callers: dict[str, Caller], admin: Caller
) -> None:
    path = f"{NODES_PATH}/real"
    assert admin.send("POST", NODES_PATH, {**NODE, "metadata": {"name": "real"}})[0] == 201
    try:
        for what, (method, part, body) in WRITES.items():
            kind = MERGE_PATCH if method == "PATCH" else JSON
            code, said = callers[OPERATOR].send(method, path + part, body, content_type=kind)
            assert code == 403, what
            assert "nodes of its groups, and no others" in said["message"], what
    finally:
        admin.send("DELETE", path)


def test_the_operator_creates_and_changes_nodes_of_its_groups_only(
    callers: dict[str, Caller], admin: Caller
) -> None:
    operator = callers[OPERATOR]

    def create(name: str, annotations: dict[str, str]) -> int:
        body = {**NODE, "metadata": {"name": name, "annotations": annotations}}
        return operator.send("POST", NODES_PATH, body)[0]

    assert create("nobodys", {FAKE: "fake"}) == 403
    assert create("not-fake", {OURS: "u"}) == 403
    assert create("ours", {OURS: "u", FAKE: "fake"}) == 201
    given_away = {"metadata": {"annotations": {OURS: "another"}}}
    path = f"{NODES_PATH}/ours"
    assert operator.send("PATCH", path, given_away, content_type=MERGE_PATCH)[0] == 403
    fine = {"metadata": {"labels": {"a": "b"}}}
    assert operator.send("PATCH", path, fine, content_type=MERGE_PATCH)[0] == 200
    assert operator.send("DELETE", path, {})[0] == 200


def test_pods_that_may_not_be_deleted_are_reported_and_nodes_go(
    own: OwnCluster, admin: Caller
) -> None:
    kubectl = own.kubectl
    with ExitStack() as stack:
        for grant in DELETE_PODS:
            stack.enter_context(grant.taken_away(admin))
        process = own.harness.start()
        apply_group(kubectl, "keeps-pods", targetSize=3, scaleDown={"pods": "Delete"})
        wait_ready(kubectl, "keeps-pods")
        scale(kubectl, "keeps-pods", 0)
        wait_ready(kubectl, "keeps-pods")
        assert names_of(kubectl, "keeps-pods") == []
        (event,) = eventually(
            lambda: [
                e for e in events_of(kubectl, "keeps-pods") if e["reason"] == "PodsNotDeleted"
            ],
            describe="it is told",
        )
        assert "kubectl apply -f deploy/components/delete-pods/rbac.yaml" in event["message"]
        assert process.log().count("PodsNotDeleted") == 1
    own.harness.stop()
    kubectl("delete", "kng", "keeps-pods")


def test_a_secret_that_may_not_be_read_is_reported(own: OwnCluster, admin: Caller) -> None:
    kubectl = own.kubectl
    with SECRETS[0].taken_away(admin):
        own.harness.start()
        far = {"from": {"nodes": {"name": "far", "cluster": {"secretName": "far"}}}}
        apply_group(kubectl, "unread", targetSize=0, template=far)
        remedy = "kubectl apply -f deploy/components/remote-templates/rbac.yaml"
        eventually(
            lambda: remedy in condition(kubectl, "unread", "TemplateResolved")["message"],
            describe="it is told",
        )
    own.harness.stop()
    kubectl("delete", "kng", "unread")
