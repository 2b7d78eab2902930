"""A label of nodes that says which groups are alike for cluster-autoscaler (CA).

    resolved node  --likeness-->  value of the label ALIKE_LABEL

With --balance-similar-node-groups CA keeps groups that it considers alike at equal sizes. It
compares the resources and labels of their nodes, except some labels, such as those of zones. The
names of our groups and of copied pools are labels, too, and would make all groups differ.
--balancing-ignore-label could leave them out, but from 1.37 on CA reads it only with its providers
for AWS, Azure and Google. With --balancing-label=ALIKE_LABEL any CA compares this label and nothing
else; its value is computed from what CA would compare otherwise.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.untyped import as_map

NOT_COMPARED: Final = frozenset(
    # CA, whatever the provider
    """kubernetes.io/hostname topology.kubernetes.io/zone topology.kubernetes.io/region
    failure-domain.beta.kubernetes.io/zone failure-domain.beta.kubernetes.io/region
    beta.kubernetes.io/fluentd-ds-ready kops.k8s.io/instancegroup"""
    # AWS
    """ alpha.eksctl.io/instance-id alpha.eksctl.io/nodegroup-name eks.amazonaws.com/nodegroup
    k8s.amazonaws.com/eniConfig karpenter.sh/nodepool lifecycle topology.ebs.csi.aws.com/zone
    topology.k8s.aws/zone-id"""
    # Azure
    """ agentpool aksEngineVersion creationSource poolName resourceNameSuffix
    kubernetes.azure.com/agentpool kubernetes.azure.com/consolidated-additional-properties
    kubernetes.azure.com/node-image-version topology.disk.csi.azure.com/zone"""
    # Google, Alibaba, IBM
    """ cloud.google.com/gke-nodepool topology.gke.io/zone
    alibabacloud.com/nodepool-id node.alibabacloud.com/nodepool-id
    topology.diskplugin.csi.alibabacloud.com/zone
    ibm-cloud.kubernetes.io/subnet-id ibm-cloud.kubernetes.io/vpc-instance-id
    ibm-cloud.kubernetes.io/worker-id ibm-cloud.kubernetes.io/worker-pool-id
    ibm-cloud.kubernetes.io/worker-pool-name ibm-cloud.kubernetes.io/zone
    vpc-block-csi-driver-labels""".split()
)
"""Labels that are not compared: CA ignores them as labels of a place or a pool, or they are such
labels on copied nodes."""

_MEMORY: Final = math.log1p(0.015)
_ALLOCATABLE: Final = math.log1p(0.05)
"""How much two amounts may differ and count as equal: logarithms of CA's defaults (1.5 %, 5 %)."""


def likeness(resolved: Mapping[str, Any]) -> str:
    """Returns ten characters that are equal for two nodes if CA would consider their groups alike.

    CA tolerates small differences of amounts. Here each amount is rounded to a step as wide as the
    tolerated difference, so two close amounts on either side of a step's boundary count as
    different.
    """
    labels, status = resolved["metadata"]["labels"], resolved["status"]
    compared = {
        "labels": {key: text for key, text in labels.items() if key not in NOT_COMPARED},
        "capacity": {
            name: _step(amount, width=_MEMORY if name == "memory" else 0)
            for name, amount in as_map(status.get("capacity")).items()
        },
        "allocatable": {
            name: _step(amount, width=_ALLOCATABLE)
            for name, amount in as_map(status.get("allocatable")).items()
        },
    }
    text = json.dumps(compared, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _step(given: object, *, width: float) -> str:
    try:
        amount = parse_quantity(given)
    except ValueError:
        return str(given)
    if not width or amount <= 0:
        return str(amount)
    return str(round((math.log(amount.numerator) - math.log(amount.denominator)) / width))
