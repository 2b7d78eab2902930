"""Names that other programs rely on: API group, labels, annotations, taints.

Each name is defined only here. Nothing here depends on anything else in the package.
"""

from typing import Final

API_GROUP: Final = "kwok-operator.io"
API_VERSION: Final = "v1alpha1"
KIND: Final = "KwokNodeGroup"
PLURAL: Final = "kwoknodegroups"
SINGULAR: Final = "kwoknodegroup"
GROUPS_PATH: Final = f"/apis/{API_GROUP}/{API_VERSION}/{PLURAL}"
POOL_KIND: Final = "KwokCapacityPool"
POOL_PLURAL: Final = "kwokcapacitypools"
POOL_SINGULAR: Final = "kwokcapacitypool"
POOL_SHORT_NAME: Final = "kpool"
POOLS_PATH: Final = f"/apis/{API_GROUP}/{API_VERSION}/{POOL_PLURAL}"
PROFILE_KIND: Final = "KwokPodProfile"
PROFILE_PLURAL: Final = "kwokpodprofiles"
PROFILE_SINGULAR: Final = "kwokpodprofile"
PROFILE_SHORT_NAME: Final = "kpp"
PROFILES_PATH: Final = f"/apis/{API_GROUP}/{API_VERSION}/{PROFILE_PLURAL}"
PROFILE_LABEL: Final = f"{API_GROUP}/pod-profile"
"""On kwok's objects that are compiled from profiles: the profile's name."""
NODES_PATH: Final = "/api/v1/nodes"
SHORT_NAME: Final = "kng"
CATEGORY: Final = "kwok"

NODE_GROUP_LABEL: Final = "kwok-operator.io/node-group"
EMULATED_NODE_GROUP: Final = "emulated"
"""The value of NODE_GROUP_LABEL on all nodes that have Machines, whatever their group:
cluster-autoscaler considers groups alike only if no label differs. CA_NODE_GROUP_ANNOTATION says
which group they belong to."""
ALIKE_LABEL: Final = "kwok-operator.io/alike"
"""On nodes without Machines: has the same value in groups that are alike, between which
cluster-autoscaler may balance nodes."""
NODE_GROUP_UID_ANNOTATION: Final = "kwok-operator.io/node-group-uid"
REQUESTED_AT_ANNOTATION: Final = "kwok-operator.io/requested-at"
TEMPLATE_HASH_ANNOTATION: Final = "kwok-operator.io/template-hash"

TEMPLATE_TAINTS_ANNOTATION: Final = "kwok-operator.io/template-taints"
"""On nodes: the taints that come from the template, as key:effect. A taint itself doesn't say who
added it."""

PLACE_ANNOTATION: Final = "kwok-operator.io/place"
"""On nodes: where the node stands: the domain of its topology, a slash, and a number."""
TOPOLOGY_ANNOTATION: Final = "kwok-operator.io/topology"
"""On nodes: the levels of the topology from which the labels of its place were made."""

LIFE_ANNOTATION: Final = "kwok-operator.io/life"
"""On nodes: all decisions of the simulated cloud about the node, from its creation to its end."""
SHOWN_ANNOTATION: Final = "kwok-operator.io/shown"
"""On nodes: the state in the simulated cloud that was last written into the node."""
NOTICED_AT_ANNOTATION: Final = "kwok-operator.io/noticed-at"
DELETE_AT_ANNOTATION: Final = "kwok-operator.io/delete-at"
"""On nodes that the simulated cloud keeps in deletion: when they are really deleted."""
HOLD_LABEL: Final = "kwok-operator.io/hold"
"""On nodes that must not be Ready: the Stage HOLD_STAGE (kwok's rule for such nodes) keeps kwok
from making them Ready."""
HOLD_LABEL_VALUE: Final = "not-ready"
HOLD_STAGE: Final = "kwok-operator-hold"

DERIVED_LABEL: Final = "kwok-operator.io/derived"
"""On groups that a provider config made; the annotations below say which, and from what."""
PROVIDER_CONFIG_ANNOTATION: Final = "kwok-operator.io/provider-config"
"""On groups that a provider config made: namespace and name of its ConfigMap, which owns the
group."""
PROVIDER_CONFIG_VALUE_ANNOTATION: Final = "kwok-operator.io/provider-config-value"
PROVIDER_CONFIG_SOURCE_ANNOTATION: Final = "kwok-operator.io/provider-config-source"
"""On groups that a provider config made: configmap, cluster or both, which is where their templates
came from."""
NOT_DERIVED_SINCE_ANNOTATION: Final = "kwok-operator.io/not-derived-since"
DESIRED_COUNT_ANNOTATION: Final = "kwok-operator.io/desired-count-applied"

CAPI_ANNOTATION: Final = "kwok-operator.io/clusterapi"
"""On groups made for an object of Cluster API: the owner as Kind/namespace/name."""
CAPI_SOURCE_ANNOTATION: Final = "kwok-operator.io/clusterapi-source"
"""On groups made for an object of Cluster API: where that object is, as API group and server. If it
is missing in another cluster, that doesn't mean that it was deleted."""
CAPI_NAMESPACE_ANNOTATION: Final = "kwok-operator.io/clusterapi-namespace"
CAPI_CLUSTER_ANNOTATION: Final = "kwok-operator.io/clusterapi-cluster"
CAPI_REPLICAS_ANNOTATION: Final = "kwok-operator.io/clusterapi-replicas"
CAPI_FOLLOWED_ANNOTATION: Final = "kwok-operator.io/clusterapi-replicas-followed"
"""On groups made for an object of Cluster API: the object's replicas to which the group was last
scaled. CAPI_REPLICAS_ANNOTATION has the object's present replicas."""
FROM_ZERO_ANNOTATION: Final = "kwok-operator.io/from-zero"
"""On groups: how the template that cluster-autoscaler gets while the group has no nodes differs
from the group's nodes."""
CA_MIN_SIZE_ANNOTATION: Final = "kwok-operator.io/cluster-autoscaler-min-size"
"""On groups: the minimum to report to cluster-autoscaler, if the group has fewer nodes than that,
which its own bounds would forbid."""

MACHINES_ANNOTATION: Final = "kwok-operator.io/machines"
"""On groups whose nodes have Machines: Cluster API's group, a slash, the Machines' namespace."""
INSTANCE_FINALIZER: Final = "kwok-operator.io/instance"
"""On Machines that are being deleted: keeps them until their instance is gone."""
CAPI_MACHINE: Final = "machine"
CAPI_CLUSTER_NAMESPACE: Final = "cluster-namespace"
"""CAPI_MACHINE and this are the ends of two annotations of Nodes, which begin with Cluster API's
group and a slash: the name and the namespace of the Node's Machine."""

REPLAYED_LABEL: Final = "kwok-operator.io/replayed"
"""On all objects of a replayed trace, so that they can be removed."""

REHEARSED_LABEL: Final = "kwok-operator.io/workload"
"""On the objects and pods of a scenario's workloads: the workload's name."""
REHEARSAL_LABEL: Final = "kwok-operator.io/rehearsal"
"""On all objects of a rehearsal in a borrowed cluster: the scenario's name."""

KWOK_NODE_ANNOTATION: Final = "kwok.x-k8s.io/node"
"""Makes the kwok controller manage a node; it must be there when kwok first sees the node."""
KWOK_NODE_ANNOTATION_VALUE: Final = "fake"

CA_NODE_GROUP_ANNOTATION: Final = "cluster-autoscaler.kwok.nodegroup/name"
"""On nodes: the group's name, under the key that cluster-autoscaler's kwok provider writes."""
CA_MIN_COUNT_ANNOTATION: Final = "cluster-autoscaler.kwok.nodegroup/min-count"
CA_MAX_COUNT_ANNOTATION: Final = "cluster-autoscaler.kwok.nodegroup/max-count"
CA_DESIRED_COUNT_ANNOTATION: Final = "cluster-autoscaler.kwok.nodegroup/desired-count"
METRICS_PATH_ANNOTATION: Final = "metrics.k8s.io/resource-metrics-path"
FAKE_KUBELET_VERSION: Final = "fake"

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ARCH_LABEL: Final = "kubernetes.io/arch"
OS_LABEL: Final = "kubernetes.io/os"
BETA_ARCH_LABEL: Final = "beta.kubernetes.io/arch"
BETA_OS_LABEL: Final = "beta.kubernetes.io/os"
"""kube-controller-manager adds BETA_ARCH_LABEL and BETA_OS_LABEL to nodes that lack them, one node
after the other."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
NODE_CLAIMS_PATH: Final = "/apis/karpenter.sh/v1/nodeclaims"
NODE_POOLS_PATH: Final = "/apis/karpenter.sh/v1/nodepools"
NODE_POOL_LABEL: Final = "karpenter.sh/nodepool"
"""Karpenter writes this label, and the two below, on NodeClaims and on their Nodes."""
CAPACITY_TYPE_LABEL: Final = "karpenter.sh/capacity-type"
INSTANCE_PRICE_LABEL: Final = "eks-node-viewer/instance-price"
"""The hourly price of the chosen offering; written by Karpenter's kwok provider."""
UNREGISTERED_TAINT_KEY: Final = "karpenter.sh/unregistered"
"""On Nodes that Karpenter hasn't registered yet: the taint evicts all pods that don't tolerate
it."""
EXCLUDE_FROM_LOAD_BALANCERS_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"

NOT_READY_TAINT_KEY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT_KEY: Final = "node.kubernetes.io/unreachable"
NOT_READY_TAINT_EFFECT: Final = "NoSchedule"
"""The taint that the API server puts on every new node; see nodegroups/usable.py."""

TTL_ANNOTATION: Final = "node.alpha.kubernetes.io/ttl"
"""Kubernetes writes this annotation on every node, for kubelets; see nodegroups/usable.py."""

GUARD_TAINT_KEY: Final = "kwok-provider"
GUARD_TAINT_VALUE: Final = "true"
GUARD_TAINT_EFFECT: Final = "NoSchedule"

MAX_GROUP_NAME_LENGTH: Final = 50
"""The most characters. A node's name (group, hash of 4, serial of 7) then fits its hostname label,
which may have 63."""
MAX_NODES_TO_DELETE: Final = 20_000
DEFAULT_MAX_TOTAL_NODES: Final = 10_000

INSTALL_IMAGE: Final = "kwok-operator"
"""The image in the manifests, without its tag."""
