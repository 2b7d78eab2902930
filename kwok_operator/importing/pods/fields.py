"""Tables for `copy_allowed`: the fields of pods and workloads that decide their scheduling and
scaling.
"""

import re
from typing import Final

from kwok_operator.constants import ZONE_LABEL
from kwok_operator.importing.pods.allow import INT_OR_TEXT, QUANTITIES, TEXTS, Schema

_REQUIREMENT: Final = {"key": str, "operator": str, "values": [str]}
SELECTOR: Final = {"matchLabels": TEXTS, "matchExpressions": [_REQUIREMENT]}
_NODE_TERM: Final = {"matchExpressions": [_REQUIREMENT], "matchFields": [_REQUIREMENT]}
_POD_TERM: Final = {
    "labelSelector": SELECTOR,
    "namespaces": [str],
    "namespaceSelector": SELECTOR,
    "topologyKey": str,
    "matchLabelKeys": [str],
    "mismatchLabelKeys": [str],
}
REQUIRED, PREFERRED = (
    f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred")
)
_AMONG_PODS: Final = {
    REQUIRED: [_POD_TERM],
    PREFERRED: [{"weight": int, "podAffinityTerm": _POD_TERM}],
}
NODE_SELECTOR: Final = {"nodeSelectorTerms": [_NODE_TERM]}
_TOLERATION: Final = {
    "key": str,
    "operator": str,
    "value": str,
    "effect": str,
    "tolerationSeconds": int,
}
RESOURCES: Final = {"requests": QUANTITIES, "limits": QUANTITIES}

POD: Final[dict[str, Schema]] = {
    "nodeSelector": TEXTS,
    "affinity": {
        "nodeAffinity": {
            REQUIRED: NODE_SELECTOR,
            PREFERRED: [{"weight": int, "preference": _NODE_TERM}],
        },
        "podAffinity": _AMONG_PODS,
        "podAntiAffinity": _AMONG_PODS,
    },
    "tolerations": [_TOLERATION],
    "topologySpreadConstraints": [
        {
            "maxSkew": int,
            "topologyKey": str,
            "whenUnsatisfiable": str,
            "labelSelector": SELECTOR,
            "minDomains": int,
            "nodeAffinityPolicy": str,
            "nodeTaintsPolicy": str,
            "matchLabelKeys": [str],
        }
    ],
    "priorityClassName": str,
    "preemptionPolicy": str,
    "schedulerName": str,
    "terminationGracePeriodSeconds": int,
    "activeDeadlineSeconds": int,
    "restartPolicy": str,
    "runtimeClassName": str,
    "resources": RESOURCES,
}
CONTAINER: Final[dict[str, Schema]] = {
    "resources": RESOURCES,
    "ports": [{"containerPort": int, "hostPort": int, "protocol": str, "hostIP": str}],
    "restartPolicy": str,
}
NAMED: Final = frozenset(
    """volumes serviceAccountName securityContext hostNetwork hostPID hostIPC hostUsers hostAliases
    hostname subdomain dnsConfig imagePullSecrets ephemeralContainers resourceClaims schedulingGates
    readinessGates setHostnameAsFQDN shareProcessNamespace os""".split()
)
"""Fields of a pod that the ledger names when they are lost."""
UNNAMED: Final = frozenset(
    """containers initContainers nodeName dnsPolicy enableServiceLinks priority overhead
    automountServiceAccountToken serviceAccount""".split()
)
"""Fields of a pod that are kept in another form, or set again on admission, so nothing is lost."""
NAMED_OF_CONTAINERS: Final = frozenset(
    """env envFrom command args image livenessProbe readinessProbe startupProbe lifecycle
    volumeMounts volumeDevices securityContext workingDir resizePolicy""".split()
)
UNNAMED_OF_CONTAINERS: Final = frozenset(
    """name imagePullPolicy terminationMessagePath terminationMessagePolicy stdin stdinOnce tty
    ports resources restartPolicy""".split()
)

JOB: Final[dict[str, Schema]] = {
    "parallelism": int,
    "completions": int,
    "completionMode": str,
    "backoffLimit": int,
    "activeDeadlineSeconds": int,
    "ttlSecondsAfterFinished": int,
    "suspend": bool,
}
OBJECTS: Final[dict[str, dict[str, Schema]]] = {
    "Deployment": {
        "replicas": int,
        "selector": SELECTOR,
        "minReadySeconds": int,
        "progressDeadlineSeconds": int,  # has to be more than minReadySeconds
        "strategy": {
            "type": str,
            "rollingUpdate": {"maxSurge": INT_OR_TEXT, "maxUnavailable": INT_OR_TEXT},
        },
    },
    "StatefulSet": {
        "replicas": int,
        "selector": SELECTOR,
        "minReadySeconds": int,
        "serviceName": str,
        "podManagementPolicy": str,
        "ordinals": {"start": int},
    },
    "DaemonSet": {"selector": SELECTOR, "minReadySeconds": int},
    "ReplicaSet": {"replicas": int, "selector": SELECTOR, "minReadySeconds": int},
    "ReplicationController": {"replicas": int, "selector": TEXTS, "minReadySeconds": int},
    "Job": JOB,
    "CronJob": {"schedule": str, "timeZone": str, "concurrencyPolicy": str},
    "PodDisruptionBudget": {
        "selector": SELECTOR,
        "minAvailable": INT_OR_TEXT,
        "maxUnavailable": INT_OR_TEXT,
        "unhealthyPodEvictionPolicy": str,
    },
    "ResourceQuota": {
        "hard": QUANTITIES,
        "scopes": [str],
        "scopeSelector": {
            "matchExpressions": [{"scopeName": str, "operator": str, "values": [str]}]
        },
    },
    "LimitRange": {
        "limits": [
            {
                "type": str,
                "min": QUANTITIES,
                "max": QUANTITIES,
                "default": QUANTITIES,
                "defaultRequest": QUANTITIES,
                "maxLimitRequestRatio": QUANTITIES,
            }
        ]
    },
}
"""The kept fields of `spec`, by kind. The pod template is cleaned separately, like a pod."""
PRIORITY_CLASS: Final[dict[str, Schema]] = {
    "value": int,
    "globalDefault": bool,
    "preemptionPolicy": str,
}
RUNTIME_CLASS: Final[dict[str, Schema]] = {
    "overhead": {"podFixed": QUANTITIES},
    "scheduling": {"nodeSelector": TEXTS, "tolerations": [_TOLERATION]},
}

ANNOTATIONS: Final = re.compile(
    r"cluster-autoscaler\.kubernetes\.io/.+|karpenter\.sh/.+|descheduler\.alpha\.kubernetes\.io/.+"
    r"|descheduler\.kubernetes\.io/.+|controller\.kubernetes\.io/pod-deletion-cost"
    r"|scheduling\.(k8s|volcano)\.(io|sh)/.+|pod-group\.scheduling\..+"
    r"|kueue\.x-k8s\.io/podset-.+"
)
"""Annotations of a pod that cluster-autoscaler, Karpenter, the descheduler, gang schedulers
and Kueue read.
"""
LABELS_OF_A_NAMESPACE_THAT_REFUSE: Final = re.compile(r"pod-security\.kubernetes\.io/.+")
LABELS_OF_ONE_POD: Final = frozenset(
    """pod-template-hash controller-revision-hash pod-template-generation controller-uid job-name
    batch.kubernetes.io/controller-uid batch.kubernetes.io/job-name
    batch.kubernetes.io/job-completion-index apps.kubernetes.io/pod-index
    statefulset.kubernetes.io/pod-name""".split()
)
"""Labels that a controller gives each pod, and will give its new pods, too."""
LABELS_OF_A_PLACE: Final = frozenset((ZONE_LABEL, "topology.kubernetes.io/region"))
"""Labels that the API server copies from the node to a pod when it is bound."""
LABELS_OF_A_JOB: Final = frozenset(
    """controller-uid job-name batch.kubernetes.io/controller-uid
    batch.kubernetes.io/job-name""".split()
)
"""Labels in a Job's template: the API server refuses those of another Job."""
QUOTA: Final = re.compile(
    r"(requests\.|limits\.)?(cpu|memory|ephemeral-storage)|pods|count/pods"
    r"|requests\.(?!storage$).+|limits\..+"
)
"""Resources of a ResourceQuota that pods can use up. Resources for claims of a StorageClass don't
match, as their names begin with the class.
"""
