"""What people and programs see of groups and pools in the API server; no operator is needed."""

from collections.abc import Iterator
from typing import Any

import pytest

from kwok_operator.cloud.api.capacitypool import GroupShare, KwokCapacityPoolStatus, PoolCondition
from kwok_operator.cloud.api.cloudstatus import (
    CloudStatus,
    InstanceCounts,
    InstanceRow,
    RefusedRecord,
    TermsRecord,
)
from kwok_operator.nodegroups.api.status import (
    Condition,
    ConditionType,
    KwokNodeGroupStatus,
    PendingBatch,
)
from kwok_operator.sources.api.source import RemoteCluster
from tests.e2e.groups import group_manifest, group_of, pool_manifest
from tests.e2e.kubectl import Kubectl, as_text

AS_STATUS = ("--server-side", "--force-conflicts", "--subresource=status", "--validate=strict")

pytestmark = pytest.mark.usefixtures("harness")  # nobody else writes status


def test_fields_can_be_explained(kubectl: Kubectl, crds: None) -> None:
    """With the descriptions of the models, of which no field is without one."""
    for path, field in (
        (
            "kng.spec.template.from.nodes.cluster.secretName",
            RemoteCluster.model_fields["secret_name"],
        ),
        ("kpool.status.groups.instances", GroupShare.model_fields["instances"]),
    ):
        # Lines are broken at spaces and hyphens alike.
        told = "".join(str(field.description).split())
        assert told in "".join(kubectl("explain", path).split())


def _full_status() -> KwokNodeGroupStatus:
    now = "2026-01-02T03:04:05Z"
    node = {
        "metadata": {"labels": {"topology.kubernetes.io/zone": "eu-west-1b"}},
        "status": {"capacity": {"cpu": "32", "memory": "256Gi", "pods": "110"}},
    }
    return KwokNodeGroupStatus(
        replicas=7,
        ready_replicas=6,
        updated_replicas=5,
        pending_replicas=3,
        failed_replicas=2,
        target_size=12,
        observed_generation=1,
        selector="kwok-operator.io/node-group=a",
        next_serial=11,
        pending=(PendingBatch(first=1, last=10, requested_at=now, except_="5,7-8"),),
        resolved_template=node,
        template_hash="abcdef0123",
        template_source="Default",
        cloud=CloudStatus(
            terms=(TermsRecord(since=now, cloud={"seed": "run-1", "stock": 5}),),
            refused=(
                RefusedRecord(
                    serials="5,7-8",
                    since=now,
                    pool="zone-b",
                    reason="PoolExhausted",
                    error_class="OutOfResources",
                    code="SoldOut",
                    message="None are left.",
                ),
            ),
            counts=InstanceCounts(
                waiting=11,
                creating=12,
                failed=2,
                unregistered=14,
                starting=15,
                initializing=16,
                ready=6,
                not_ready=18,
                interrupted=19,
                deleting=20,
            ),
            instances=(
                InstanceRow(
                    state="Failed",
                    reason="PoolExhausted",
                    count=3,
                    serials="5,7-8",
                    since=now,
                    message="None are left.",
                ),
            ),
        ),
        conditions=tuple(
            Condition(
                type=kind,
                status="False",
                reason=f"{kind}Reason",
                message="What to do.",
                observed_generation=1,
                last_transition_time=now,
            )
            for kind in ConditionType
        ),
    )


@pytest.mark.core
def test_the_status_of_the_models_is_kept_whole_and_shown(
    kubectl: Kubectl, group_name: str
) -> None:
    status = _full_status()
    manifest = group_manifest(group_name, autoscaling={"minSize": 1, "maxSize": 20})
    kubectl.apply(manifest)
    kubectl.apply({**manifest, "status": status.dump()}, *AS_STATUS)
    stored = group_of(kubectl, group_name)["status"]
    assert stored == status.dump()
    assert KwokNodeGroupStatus.model_validate(stored) == status
    # Whoever applies a manifest with a status in it changes nothing.
    kubectl.apply({**manifest, "status": {"replicas": 99}})
    assert group_of(kubectl, group_name)["status"] == stored

    narrow = {"NAME": group_name, "TARGET": "12", "CURRENT": "7", "READY": "6"}
    narrow["STATUS"] = "ReadyReason"
    assert _cells(kubectl, "kng", group_name) == narrow
    assert _cells(kubectl, "kng", group_name, "--output=wide") == {
        **narrow,
        "MIN": "1",
        "MAX": "20",
        "CPU": "32",
        "MEMORY": "256Gi",
    }


def _cells(kubectl: Kubectl, *what: str) -> dict[str, str]:
    """What `kubectl get` shows of one object, by column, but for its age."""
    header, row = kubectl("get", *what).splitlines()
    shown = dict(zip(header.split(), row.split(), strict=True))
    assert shown.pop("AGE").endswith("s")
    return shown


@pytest.fixture
def pool_name(kubectl: Kubectl, group_name: str) -> Iterator[str]:
    yield group_name
    kubectl("delete", "kpool", group_name, "--ignore-not-found")


def test_status_and_columns_of_a_pool(kubectl: Kubectl, pool_name: str) -> None:
    resources = {"cpu": "96", "nvidia.com/gpu": "8"}
    status = KwokCapacityPoolStatus(
        observed_generation=1,
        instances=7,
        resources=resources,
        groups=(GroupShare(group="batch", instances=7, resources=resources),),
        other_groups=2,
        refused=3,
        conditions=tuple(
            PoolCondition(
                type=kind,
                status="True",
                reason="Reason",
                message="What is.",
                observed_generation=1,
                last_transition_time="2026-01-02T03:04:05Z",
            )
            for kind in ("Outage", "Exhausted")
        ),
    )
    manifest = pool_manifest(
        pool_name, instances=9, resources={"cpu": 512, "nvidia.com/gpu": "16"}, outage=True
    )
    kubectl.apply(manifest)
    kubectl.apply({**manifest, "status": status.dump()}, *AS_STATUS)
    assert kubectl.json("get", "kpool", pool_name)["status"] == status.dump()

    assert _cells(kubectl, "kpool", pool_name, "--output=wide") == {
        "NAME": pool_name,
        "INSTANCES": "7",
        "LIMIT": "9",
        "REFUSED": "3",
        "OUTAGE": "True",
        "CPU": "96",
        "CPU-LIMIT": "512",
        "GPU": "8",
        "GPU-LIMIT": "16",
    }
    assert pool_name in kubectl("get", "kwok")


def test_server_side_apply_may_empty_any_part_of_a_pool(kubectl: Kubectl, pool_name: str) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"resources": {"cpu": 1}},
        {"resources": {}},
        {"error": {"class": "Other"}},
        {"error": {}},
        {"instances": 5},
        {},
    )
    for spec in changes:
        kubectl.apply(pool_manifest(pool_name, **spec), "--server-side")
    # One that was made without a spec can be read, and patched, too.
    bare = pool_manifest(f"{pool_name}-bare")
    del bare["spec"]
    assert kubectl.json("create", "-f-", "--dry-run=server", stdin=as_text(bare))["spec"] == {}
