"""`spec.template.from`: a ConfigMap or real nodes from which a template is copied."""

from typing import Annotated

from pydantic import Field

from kwok_operator.api.base import (
    MAX_OBJECT_NAME,
    ApiModel,
    LabelValue,
    ObjectName,
    QualifiedName,
    Text,
    at_least_one_of,
    exactly_one_of,
    rules,
)
from kwok_operator.api.selectors import SelectorRequirement

_DATA_KEY = r"^[-._a-zA-Z0-9]+$"
_MAX_ANNOTATION_VALUE = 4_096

DEFAULT_KUBECONFIG_KEYS = ("kubeconfig", "value")
"""Keys of a Secret that are tried one after the other; Cluster API writes the second."""


DataKey = Annotated[
    str,
    Text(
        pattern=_DATA_KEY,
        max_length=MAX_OBJECT_NAME,
        message="must be a key of a ConfigMap or Secret: letters, digits, '-', '_' and '.'",
    ),
]
"""A key in the data of a ConfigMap or a Secret."""


class NodeSelector(ApiModel):
    match_labels: dict[str, LabelValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Labels that a node has. Example: {pool: batch}.",
    )
    match_expressions: tuple[SelectorRequirement, ...] = Field(
        default=(),
        max_length=64,
        description="Further conditions on a node's labels. Default: none."
        " Example: [{key: gpu, operator: Exists}].",
    )


class NodeAnnotation(ApiModel):
    key: QualifiedName = Field(description="The annotation's key. Example: example.com/pool.")
    value: str = Field(
        max_length=_MAX_ANNOTATION_VALUE, description="The annotation's value. Example: batch."
    )


class RemoteCluster(ApiModel):
    secret_name: ObjectName = Field(
        description="Name of a Secret with a kubeconfig, in the operator's namespace. The account"
        " in it needs get, list and watch on nodes, and no more unless companions are copied."
    )
    key: DataKey | None = Field(
        default=None,
        description="The Secret's key with the kubeconfig. Default: kubeconfig, else value (where"
        " Cluster API puts it).",
    )


class ConfigMapSource(ApiModel):
    name: ObjectName = Field(
        description="Name of a ConfigMap, in the operator's namespace or the one that"
        " --provider-config-namespace names."
    )
    key: DataKey | None = Field(
        default=None,
        description="The key with the Nodes: one Node, a v1 List, or documents separated by ---."
        " Default: the ConfigMap's only key.",
    )
    node: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_OBJECT_NAME,
        description="Name (metadata.name) of the Node to take, where there are several. Default:"
        " the only one.",
    )


class NodesSource(ApiModel):
    model_config = rules(
        exactly_one_of("name", "selector", "annotation", of="template.from.nodes ")
    )

    name: ObjectName | None = Field(
        default=None, description="The name of one node. Default: any name."
    )
    selector: NodeSelector | None = Field(
        default=None,
        description="Labels of the node; {} means any. Of several matches the newest that is Ready"
        " and schedulable is taken, and followed. Fake nodes never match. Example: {matchLabels:"
        " {node.kubernetes.io/instance-type: m5.large}}.",
    )
    annotation: NodeAnnotation | None = Field(
        default=None,
        description="An annotation of the node; otherwise like selector."
        " Example: {key: example.com/pool, value: batch}.",
    )
    cluster: RemoteCluster | None = Field(
        default=None, description="Another cluster. Default: this one."
    )
    companions: bool = Field(
        default=False,
        description="Whether the nodes get what belongs to that node besides the Node, too: its"
        " CSINode and the ResourceSlices of its devices. Needs the rights of the component"
        " `companions`; in another cluster the account needs get on csinodes and list on"
        " resourceslices. Default: false.",
    )


class TemplateSource(ApiModel):
    model_config = rules(
        at_least_one_of(
            "configMap", "nodes", message="template.from must have configMap, nodes, or both"
        )
    )

    config_map: ConfigMapSource | None = Field(
        default=None,
        description="A Node in a ConfigMap. Given together with nodes, it is merged over the node"
        " found there. Example: {name: templates, node: m5.large}.",
    )
    nodes: NodesSource | None = Field(
        default=None,
        description="A real node of this cluster or another, followed while it changes. When it is"
        " gone, the last template stays. Example: {name: ip-10-0-0-1.ec2.internal}.",
    )
