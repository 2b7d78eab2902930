"""KwokNodeGroups that the API server takes, and such that it refuses, each with a part of why.

One table for two tests: `kwok-operator validate` must give these answers without a cluster, and a
real API server the same ones.
"""

from typing import Any

Manifest = dict[str, Any]


def group(spec: Any = None, *, name: str = "batch", **metadata: Any) -> Manifest:
    """A whole object; without a spec it has none."""
    manifest: Manifest = {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": "KwokNodeGroup",
        "metadata": {"name": name, **metadata},
    }
    return manifest if spec is None else {**manifest, "spec": spec}


def shape(**fields: Any) -> Manifest:
    return group({"template": {"shape": fields}})


def source(**fields: Any) -> Manifest:
    return group({"template": {"from": fields}})


def selecting(requirement: Any) -> Manifest:
    return source(nodes={"selector": {"matchExpressions": [requirement]}})


def options(**fields: Any) -> Manifest:
    return group({"autoscaling": {"options": fields}})


def network(**fields: Any) -> Manifest:
    return group({"template": {"network": fields}})


def topology(*levels: Manifest, domain: str = "pool-a", **shape: Any) -> Manifest:
    return group(
        {"template": {"topology": {"domain": domain, "levels": [*levels]}, "shape": shape}}
    )


def out(*values: str, **fields: Any) -> Manifest:
    """Units in an outage: blocks of 4 racks."""
    levels = [{"label": "a.b/block", "of": 4}, {"label": "a.b/rack", "of": 18}]
    topology = {"levels": levels, **fields}
    return group({"cloud": {"outageUnits": [*values]}, "template": {"topology": topology}})


GOOD: dict[str, Manifest] = {
    "no spec": group(),
    "empty spec": group({}),
    "a target": group({"targetSize": 10}),
    "longest name": group({}, name="a" * 50),
    "name with dots": group({}, name="m5.large"),
    "labels and annotations": group({}, labels={"a/b": "c"}, annotations={"x": "any text\n"}),
    "empty autoscaling": group({"autoscaling": {}}),
    "bounds that are equal": group({"autoscaling": {"minSize": 3, "maxSize": 3}}),
    "target at the bound": group({"targetSize": 3, "autoscaling": {"maxSize": 3}}),
    "target below the floor": group({"targetSize": 0, "autoscaling": {"minSize": 3}}),
    "largest target": group({"targetSize": 1_000_000}),
    "null in place of a number": group({"targetSize": None}),
    "null where an object is optional": group({"template": {"shape": None}, "guardTaint": None}),
    "quantities": shape(cpu=8, memory="32Gi", ephemeralStorage="1e3", resources={"a.b/c": "500m"}),
    "huge pages": shape(resources={"hugepages-2Mi": "1Gi"}),
    "all reserved": shape(cpu=2, memory="1Gi", reserved={"cpu": "2000m", "memory": "1024Mi"}),
    "reserved without a size": shape(reserved={"cpu": 4}),
    "gpu": shape(gpu={"count": 8}, resources={"amd.com/gpu": 1}),
    "addresses": network(podCIDR="10.0.0.0/8", blockSize=26, nodeCIDR="fd00::/64"),
    "racks": topology({"label": "nvidia/clique", "of": 18}, domain="a" * 40),
    "a cloud by rack": group(
        {
            "cloud": {"unit": "example.com/rack", "stock": 36},
            "template": {
                "topology": {
                    "levels": [{"label": "a.b/row", "also": ["example.com/rack"], "of": 4}]
                }
            },
        }
    ),
    "units that are out": out("batch-0-3", "batch-12", "batch-0-3"),
    "units that are out, of a domain": out("pool.x-0-0", "pool.x-1234567", domain="pool.x"),
    "no units that are out": group({"cloud": {"outageUnits": []}}),
    "five levels": topology(
        *({"label": f"example.com/{n}", "also": [f"example.org/{n}"], "of": 15} for n in range(5)),
    ),
    "addresses of IPv6": network(podCIDR="fd00::/48"),
    "one block": network(podCIDR="10.0.0.0/24"),
    "empty label value": shape(labels={"example.com/pool": ""}),
    "taints": shape(
        taints=[{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]
    ),
    "any part of a node": group({"template": {"node": {"spec": {"any": [1, {"x": None}]}}}}),
    "from a ConfigMap": source(configMap={"name": "templates", "key": "a.yaml", "node": "x"}),
    "from a node": source(nodes={"name": "ip-10-0-0-1.ec2.internal"}),
    "from nodes with labels": source(nodes={"selector": {"matchLabels": {"pool": "a"}}}),
    "from any node": source(nodes={"selector": {}}),
    "from nodes with an annotation": source(nodes={"annotation": {"key": "a/b", "value": "c d"}}),
    "from both": source(configMap={"name": "t"}, nodes={"name": "real"}),
    "from another cluster": source(nodes={"name": "real", "cluster": {"secretName": "s"}}),
    "a label that exists": selecting({"key": "gpu", "operator": "Exists"}),
    "a label with values": selecting({"key": "gpu", "operator": "In", "values": ["a", "b"]}),
    "rolling by number": group(
        {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 10}}}
    ),
    "rolling by share": group({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}),
    "victims": group({"scaleDown": {"nodesToDelete": ["batch-abcd-000001"], "pods": "Delete"}}),
    "guard taint": group({"guardTaint": {"enabled": False, "key": "a.b/c", "value": ""}}),
    "all options": options(
        scaleDownUtilizationThreshold="0.5",
        scaleDownGpuUtilizationThreshold="1.0",
        scaleDownUnneededTime="90s",
        scaleDownUnreadyTime="1h30m",
        maxNodeProvisionTime="0s",
        zeroOrMaxNodeScaling=False,
        ignoreDaemonSetsUtilization=True,
    ),
    "no options": options(),
    "option that is null": options(scaleDownUnneededTime=None),
    "shares at the ends": options(
        scaleDownUtilizationThreshold="0", scaleDownGpuUtilizationThreshold="1"
    ),
    "gpu label": group({"autoscaling": {"gpuLabel": "k8s.amazonaws.com/accelerator"}}),
    "price": group({"price": {"hourly": "32.77"}}),
    "price of nothing": group({"price": {"hourly": "0"}}),
    "price in a currency": group({"price": {"hourly": "1", "currency": "EUR"}}),
}


def device(driver: str = "gpu.example.com", **given: object) -> Manifest:
    slices = [{"driver": driver, "devices": [{"name": "gpu", **given}]}]
    return group({"template": {"companions": {"resourceSlices": slices}}})


BAD: dict[str, tuple[Manifest, str]] = {
    "a device's attribute with two values": (
        device(attributes={"model": {"string": "a", "int": 1}}),
        "must have one value: string, int, bool or version",
    ),
    "a device's driver in capitals": (device("GPU"), "must be a DNS name in lower case"),
    "a device with a dot": (device(name="gpu.0"), "must be lower-case letters, digits and '-'"),
    "counters of no set": (
        device(consumesCounters=[{"counterSet": "a b"}]),
        "must be the name of one of sharedCounters",
    ),
    "name too long": (group({}, name="a" * 51), "at most 50 characters"),
    "upper-case name": (group({}, name="Batch"), "metadata.name"),
    "label that is a number": (group({}, labels={"a": 5}), "labels"),
    "label value": (group({}, labels={"a": "b c"}), "labels"),
    "negative target": (group({"targetSize": -1}), "spec.targetSize"),
    "target too large": (group({"targetSize": 1_000_001}), "spec.targetSize"),
    "target that is text": (group({"targetSize": "10"}), "spec.targetSize"),
    "target that is a share": (group({"targetSize": 1.5}), "spec.targetSize"),
    "target above the bound": (
        group({"targetSize": 4, "autoscaling": {"maxSize": 3}}),
        "targetSize must not be greater than autoscaling.maxSize",
    ),
    "bounds that cross": (
        group({"autoscaling": {"minSize": 4, "maxSize": 3}}),
        "autoscaling.minSize must not be greater than autoscaling.maxSize",
    ),
    "minimum above all": (group({"autoscaling": {"minSize": 1_000_001}}), "autoscaling.minSize"),
    "paused that is text": (group({"paused": "yes"}), "spec.paused"),
    "unknown field": (group({"targetsize": 5}), "targetsize"),
    "unknown field inside": (shape(memorySize="1Gi"), "memorySize"),
    "template that is a list": (group({"template": []}), "spec.template"),
    "node that is text": (group({"template": {"node": "a"}}), "spec.template.node"),
    "quantity": (shape(cpu="8 cores"), "must be a quantity and not negative"),
    "negative quantity": (shape(memory="-1Gi"), "must be a quantity and not negative"),
    "less than nothing": (shape(memory="-0"), "must be a quantity and not negative"),
    "empty quantity": (shape(cpu=""), "must be a quantity and not negative"),
    "quantity of a resource": (
        shape(resources={"a.b/c": "x"}),
        "must be a quantity and not negative",
    ),
    "quantity reserved": (
        shape(memory="1Gi", reserved={"memory": "1G1"}),
        "must be a quantity and not negative",
    ),
    "long quantity": (shape(cpu="4" * 33), "spec.template.shape.cpu"),
    "quantity with a point": (shape(cpu=0.5), "spec.template.shape.cpu"),
    "pods below none": (shape(maxPods=-1), "spec.template.shape.maxPods"),
    "quantity that is a list": (shape(cpu=[]), "spec.template.shape.cpu"),
    "reserved above capacity": (shape(cpu=2, reserved={"cpu": "2001m"}), "shape.reserved.cpu must"),
    "reserved memory": (
        shape(memory="1G", reserved={"memory": "1Gi"}),
        "shape.reserved.memory must",
    ),
    "reserved disk": (
        shape(ephemeralStorage=1, reserved={"ephemeralStorage": 2}),
        "shape.reserved.ephemeralStorage must not be greater",
    ),
    "no range": (network(podCIDR="10.0.0.0"), "network.podCIDR must be a range of addresses"),
    "a prefix with a nought": (network(podCIDR="10.0.0.0/08"), "network.podCIDR must be a range"),
    "IPv4 as IPv6": (
        network(podCIDR="10.0.0.0/8", nodeCIDR="::ffff:10.0.0.0/104"),
        "network.nodeCIDR must be a range",
    ),
    "range from its middle": (network(podCIDR="10.1.0.0/8"), "network.podCIDR must be a range"),
    "nodes from a middle": (
        network(podCIDR="10.0.0.0/8", nodeCIDR="fd00::1/64"),
        "network.nodeCIDR must be a range",
    ),
    "two addresses": (
        network(podCIDR="10.0.0.0/8", nodeCIDR="10.0.0.0/31"),
        "network.nodeCIDR must have 4 addresses",
    ),
    "blocks above the range": (network(podCIDR="10.0.0.0/25"), "network.blockSize must be from"),
    "blocks below an address": (
        network(podCIDR="10.0.0.0/8", blockSize=33),
        "network.blockSize must be from",
    ),
    "a unit that is no level": (
        group({"cloud": {"unit": "example.com/rack"}}),
        "cloud.unit must be a label of a level of template.topology",
    ),
    "a unit of another level": (
        group(
            {
                "cloud": {"unit": "example.com/row"},
                "template": {"topology": {"levels": [{"label": "example.com/rack", "of": 4}]}},
            }
        ),
        "cloud.unit must be a label of a level of template.topology",
    ),
    "units out without a topology": (
        group({"cloud": {"outageUnits": ["batch-0"]}}),
        "cloud.outageUnits must be values that",
    ),
    **{
        f"units out as {value}": (out(value), "cloud.outageUnits must be values that")
        for value in (
            "batch",
            "batch-0-4",
            "batch-00",
            "batch-0-0-0",
            "pool-0",
            "batch-",
            "batchx-0",
        )
    },
    "units out of another domain": (
        out("batch-0", domain="pool"),
        "cloud.outageUnits must be values that",
    ),
    "no levels": (topology(), "template.topology.levels"),
    "levels that multiply to too much": (
        topology({"label": "a.b/block", "of": 1_000}, {"label": "a.b/rack", "of": 1_001}),
        "topology.levels: one unit of the first level must hold at most",
    ),
    "a level that holds nothing": (
        topology({"label": "a.b/rack", "of": 0}),
        "template.topology.levels[0].of",
    ),
    "a level twice": (
        topology({"label": "a.b/rack", "of": 4}, {"label": "a.b/rack", "of": 18}),
        "topology.levels must not have a label twice",
    ),
    "a level twice in one": (
        topology({"label": "a.b/rack", "also": ["a.b/rack"], "of": 4}),
        "topology.levels must not have a label twice",
    ),
    "a level's second label twice": (
        topology({"label": "a.b/x", "also": ["a.b/y"], "of": 4}, {"label": "a.b/y", "of": 2}),
        "topology.levels must not have a label twice",
    ),
    "a level that is a label": (
        topology({"label": "a.b/rack", "of": 4}, labels={"a.b/rack": "1"}),
        "template.topology and shape.labels must not set the same label",
    ),
    "a level by hostname": (
        topology({"label": "kubernetes.io/hostname", "of": 4}),
        "topology: a level must not be kubernetes.io/hostname",
    ),
    "a level with a label of ours": (
        topology({"label": "a.b/c", "also": ["kwok-operator.io/place"], "of": 4}),
        "topology: a level must not be",
    ),
    "an unknown short form": (
        topology({"label": "gke/rack", "of": 4}),
        "topology: a label's domain must have a dot in it",
    ),
    "a long domain": (topology({"label": "a.b/c", "of": 4}, domain="a" * 41), "topology.domain"),
    "no range of pods": (network(nodeCIDR="10.0.0.0/8"), "network.podCIDR"),
    "hostname label": (shape(labels={"kubernetes.io/hostname": "a"}), "shape.labels must set"),
    "group label": (shape(labels={"kwok-operator.io/node-group": "a"}), "shape.labels must set"),
    "key of a label": (shape(labels={"a b": "c"}), "shape.labels: a key must be a name"),
    "value of a label": (shape(labels={"a": "b c"}), "must begin and end with a letter or a digit"),
    "long value of a label": (shape(labels={"a": "b" * 64}), "spec.template.shape.labels"),
    "empty zone": (shape(zone=""), "must begin and end with a letter or a digit"),
    "too many labels": (
        shape(labels={f"k{i}": "" for i in range(129)}),
        "spec.template.shape.labels",
    ),
    "native resource": (shape(resources={"cpu": 1}), "shape.resources is for resources with"),
    "devices of another's GPU": (
        shape(gpu={"count": 1, "type": "amd.com/gpu", "dra": True}),
        "shape.gpu.dra is for nvidia.com/gpu",
    ),
    "profile of no devices": (
        shape(gpu={"count": 1, "profile": "H100"}),
        "shape.gpu.profile says what is published by DRA",
    ),
    "65 GPUs as devices": (
        shape(gpu={"count": 65, "dra": True}),
        "shape.gpu.count must be at most 64",
    ),
    "gpu twice": (
        shape(gpu={"count": 1}, resources={"nvidia.com/gpu": 1}),
        "shape.gpu and shape.resources set the same resource",
    ),
    "gpu without a count": (shape(gpu={"type": "nvidia.com/gpu"}), "gpu.count"),
    "gpu without a domain": (shape(gpu={"type": "gpu", "count": 1}), "resource with its domain"),
    "effect of a taint": (
        shape(taints=[{"key": "a", "effect": "NoScheduling"}]),
        "spec.template.shape.taints[0].effect",
    ),
    "taint without an effect": (shape(taints=[{"key": "a"}]), "effect"),
    "taint twice": (
        shape(taints=[{"key": "a", "effect": "NoSchedule"}] * 2),
        "spec.template.shape.taints[1]",
    ),
    "no source": (source(), "template.from must have configMap, nodes, or both"),
    "no node": (source(nodes={}), "must have exactly one of name, selector and annotation"),
    "two ways to a node": (source(nodes={"name": "a", "selector": {}}), "must have exactly one of"),
    "name of a ConfigMap": (source(configMap={"name": "A_b"}), "must be the name of an object"),
    "key of a ConfigMap": (source(configMap={"name": "a", "key": "b/c"}), "must be a key of a"),
    "empty node name": (source(configMap={"name": "a", "node": ""}), "configMap.node"),
    "annotation without a value": (source(nodes={"annotation": {"key": "a"}}), "value"),
    "In without values": (selecting({"key": "a", "operator": "In"}), "In and NotIn must have"),
    "Exists with values": (
        selecting({"key": "a", "operator": "Exists", "values": ["b"]}),
        "In and NotIn must have values",
    ),
    "operator": (selecting({"key": "a", "operator": "Equals"}), "operator"),
    "share above all": (
        group({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}),
        "must be a number of nodes from 1, or a share",
    ),
    "no node at a time": (
        group({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}),
        "must be a number of nodes from 1, or a share",
    ),
    "order": (group({"scaleDown": {"order": "Newest"}}), "spec.scaleDown.order"),
    "victim without a name": (group({"scaleDown": {"nodesToDelete": [""]}}), "nodesToDelete[0]"),
    "long name of a victim": (
        group({"scaleDown": {"nodesToDelete": ["a" * 64]}}),
        "nodesToDelete[0]",
    ),
    "pods of a victim": (group({"scaleDown": {"pods": "Evict"}}), "spec.scaleDown.pods"),
    "guard taint": (group({"guardTaint": {"effect": "No"}}), "spec.guardTaint.effect"),
    "key of the guard taint": (
        group({"guardTaint": {"key": "a b"}}),
        "such as gpu or example.com/gpu",
    ),
    "value of the guard taint": (
        group({"guardTaint": {"value": "a b"}}),
        "must begin and end with a letter or a digit",
    ),
    "null in a list": (group({"scaleDown": {"nodesToDelete": [None]}}), "nodesToDelete[0]"),
    "null where something is needed": (shape(gpu={"count": None}), "gpu.count"),
    "share above one": (options(scaleDownUtilizationThreshold="1.5"), "must be a share from 0 to"),
    "share in percent": (options(scaleDownGpuUtilizationThreshold="50%"), "must be a share from 0"),
    "negative share": (options(scaleDownUtilizationThreshold="-0.5"), "must be a share from 0 to"),
    "share that is a number": (
        options(scaleDownUtilizationThreshold=0.5),
        "options.scaleDownUtilizationThreshold",
    ),
    "time without a unit": (options(scaleDownUnneededTime="90"), "must be a time such as"),
    "time in milliseconds": (options(scaleDownUnreadyTime="500ms"), "must be a time such as"),
    "time out of order": (options(maxNodeProvisionTime="30s5m"), "must be a time such as"),
    "negative time": (options(maxNodeProvisionTime="-5m"), "must be a time such as"),
    "time that is a number": (options(scaleDownUnneededTime=90), "options.scaleDownUnneededTime"),
    "flag that is text": (options(zeroOrMaxNodeScaling="no"), "options.zeroOrMaxNodeScaling"),
    "unknown option": (options(scaleDownUneededTime="5m"), "scaleDownUneededTime"),
    "gpu label with a blank": (group({"autoscaling": {"gpuLabel": "a b"}}), "must be a name"),
    "empty gpu label": (group({"autoscaling": {"gpuLabel": ""}}), "autoscaling.gpuLabel"),
    "price without an amount": (group({"price": {}}), "hourly"),
    "negative price": (group({"price": {"hourly": "-1"}}), "must be an amount"),
    "price with a sign": (group({"price": {"hourly": "$3"}}), "must be an amount"),
    "currency in small letters": (
        group({"price": {"hourly": "3", "currency": "eur"}}),
        'must be a code such as "EUR"',
    ),
    "price that is a number": (group({"price": {"hourly": 3}}), "price.hourly"),
}
