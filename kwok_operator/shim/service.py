"""Answers cluster-autoscaler's CloudProvider protocol: what each call means for our groups.

    request bytes ──> Store (reads) or TargetWriter (writes) ──> response bytes

Reads come from memory and answer at once. Writes change the group's spec, and return when the API
server has it; the operator then creates or deletes nodes. The shim itself drains, creates and
deletes nothing, and Cleanup does nothing: the nodes outlive every cluster-autoscaler.
"""

import logging
from collections.abc import Mapping
from typing import Final

from kwok_operator import constants
from kwok_operator.cloud.checks import cautions
from kwok_operator.clusterapi.capacity import whole_number
from kwok_operator.errors import (
    ForbiddenError,
    InvalidError,
    KwokOperatorError,
    TemplateError,
    one_line,
)
from kwok_operator.formats.words import few_names
from kwok_operator.nodegroups import autoscaler
from kwok_operator.nodegroups.api.status import ConditionType
from kwok_operator.nodegroups.autoscalable import (
    MAX_ANSWER,
    gpu_label_in_use,
    too_many_instances,
)
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.plan import WAITING
from kwok_operator.shim import messages
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from kwok_operator.shim.instancestates import UNKNOWN, InstanceStates
from kwok_operator.shim.options import (
    gpu_labels,
    gpu_types,
    merged_options,
    pod_cost_hourly,
    should_hide_options,
)
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.store import Store
from kwok_operator.shim.template import NO_OVERLAY, TemplateOverlay, read_overlay, template_node
from kwok_operator.shim.writer import BusyError, Decide, NotServedError, TargetWriter

logger = logging.getLogger(__name__)

_TEMPLATE_MARKS: Final = (constants.CAPI_NAMESPACE_ANNOTATION, constants.FROM_ZERO_ANNOTATION)
"""Annotations of a group that change the template from which CA scales up from zero."""

SERVICE: Final = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/"
FAKE_NODE_REASON: Final = "k8s.io/cluster-autoscaler/fake-node-reason"
"""The annotation by which cluster-autoscaler marks the placeholders that it makes for instances
without a Node."""
CREATE_ERROR: Final = "create-error"

_CODES: Final = {
    autoscaler.RefusalReason.INVALID: StatusCode.INVALID_ARGUMENT,
    autoscaler.RefusalReason.OUT_OF_RANGE: StatusCode.OUT_OF_RANGE,
    autoscaler.RefusalReason.AT_MINIMUM: StatusCode.FAILED_PRECONDITION,
    autoscaler.RefusalReason.TOO_MANY: StatusCode.RESOURCE_EXHAUSTED,
}
_EMPTY: Final = b""
_OF_NO_GROUP: Final = messages.node_group_for_node(None)
_INT32_MAX: Final = 2**31 - 1


class CloudProvider:
    """Answers the calls of the protocol. `handlers` returns its methods by their full names."""

    def __init__(self, *, store: Store, writer: TargetWriter) -> None:
        self._store = store
        self._writer = writer
        self._states = InstanceStates(store)
        self._for_node: dict[str, tuple[Group, bytes]] = {}
        self._templates: dict[str, tuple[tuple[str, bool, int], bytes]] = {}
        self._sent: dict[str, str] = {}
        """Group's uid -> the hash of the template that cluster-autoscaler may have kept."""
        self._hidden: frozenset[str] = frozenset()
        self._warned: dict[str, tuple[str, ...]] = {}
        self._first_loop = True

    def handlers(self) -> Mapping[str, Handler]:
        calls: dict[str, Handler] = {
            "NodeGroups": self.node_groups,
            "NodeGroupForNode": self.node_group_for_node,
            "NodeGroupTargetSize": self.target_size,
            "NodeGroupIncreaseSize": self.increase_size,
            "NodeGroupDeleteNodes": self.delete_nodes,
            "NodeGroupDecreaseTargetSize": self.decrease_target_size,
            "NodeGroupNodes": self.nodes,
            "NodeGroupTemplateNodeInfo": self.template_node_info,
            "NodeGroupGetOptions": self.get_options,
            "PricingNodePrice": self.node_price,
            "PricingPodPrice": self.pod_price,
            "GPULabel": self.gpu_label,
            "GetAvailableGPUTypes": self.gpu_types,
            "Cleanup": lambda _: _EMPTY,
            "Refresh": self.refresh,
        }
        return {f"{SERVICE}{name}": handler for name, handler in calls.items()}

    def refresh(self, _: bytes) -> bytes:
        """Begins a loop of cluster-autoscaler: decides which groups are left out of this loop.

        For a group without nodes, cluster-autoscaler keeps a copy of the group's last node as its
        template, for ever. So it never sees a new template of a group that was scaled to zero and
        then changed. If a group is left out for one loop, cluster-autoscaler forgets it, and reads
        its template when it is back. Changes before this process began are unknown, so an empty
        group that has had nodes is left out of the first loop.
        """
        self._need_sync()
        hidden = set()
        sent: dict[str, str] = {}
        for group in self._store.all_served():
            current = _template_hash(group)
            unknown = self._first_loop and group.status.next_serial > 0
            known = self._sent.get(group.uid, "" if unknown else current)
            self._warn(group)
            if known != current and self._is_empty(group):
                hidden.add(group.uid)
                logger.info("left out for a loop, its template may be new: group=%s", group.name)
                known = current
            sent[group.uid] = current if unknown else known
        for kept in (self._for_node, self._templates, self._warned):
            for uid in kept.keys() - sent.keys():
                del kept[uid]
        self._states.keep(sent.keys())
        self._sent, self._hidden, self._first_loop = sent, frozenset(hidden), False
        return _EMPTY

    def node_groups(self, _: bytes) -> bytes:
        self._need_sync()
        served = self._store.all_served()
        return messages.node_groups(_node_group(g) for g in served if g.uid not in self._hidden)

    def node_group_for_node(self, request: bytes) -> bytes:
        node = messages.read(pb.NodeGroupForNodeRequest, request).node
        group = self._store.group_for(node.providerID, instance_name(self._store, node))
        if group is None:
            self._need_sync()
            return _OF_NO_GROUP
        known = self._for_node.get(group.uid)
        if known is None or known[0] is not group:
            answer = messages.node_group_for_node(_node_group(group))
            known = self._for_node[group.uid] = (group, answer)
        return known[1]

    def target_size(self, request: bytes) -> bytes:
        group = self._group(messages.read(pb.NodeGroupTargetSizeRequest, request).id)
        return messages.target_size(self._store.target(group))

    async def increase_size(self, request: bytes) -> bytes:
        call = messages.read(pb.NodeGroupIncreaseSizeRequest, request)
        group = self._group(call.id)
        if (why := _unusable_template(group)) is not None:
            # The operator gives out no serial without a template. CA would wait for an instance
            # without an error.
            raise _no_template(group, why)
        await self._change(
            group, lambda fleet: autoscaler.increase(fleet, call.delta), log="scaled up"
        )
        return _EMPTY

    async def delete_nodes(self, request: bytes) -> bytes:
        call = messages.read(pb.NodeGroupDeleteNodesRequest, request)
        group = self._group(call.id)
        victims = [self._victim(group, node) for node in call.nodes]
        await self._change(group, lambda fleet: autoscaler.delete(fleet, victims), log="given back")
        return _EMPTY

    async def decrease_target_size(self, request: bytes) -> bytes:
        call = messages.read(pb.NodeGroupDecreaseTargetSizeRequest, request)
        group = self._group(call.id)
        await self._change(
            group, lambda fleet: autoscaler.decrease(fleet, call.delta), log="taken back"
        )
        return _EMPTY

    async def nodes(self, request: bytes) -> bytes:
        group = self._group(messages.read(pb.NodeGroupNodesRequest, request).id)
        states = await self._states.read(group)
        fleet = self._store.fleet(group)
        refused, obstacle = _failure(group), _obstacle(group)
        instances = [
            messages.ExternalInstance(
                self._provider_id(group, s),
                messages.DELETING if name in fleet.going else self._state(group, s),
            )
            for s, name in sorted(fleet.present.items())
        ]
        instances += [
            messages.ExternalInstance(self._provider_id(group, s), messages.DELETING)
            for s in sorted(fleet.leaving)
        ]
        for serial in fleet.waiting:
            state, fault = states.get(serial, UNKNOWN)
            if fault is None and state == messages.CREATING:
                fault = refused or (obstacle if serial >= fleet.next_serial else None)
            instances.append(
                messages.ExternalInstance(self._provider_id(group, serial), state, fault)
            )
        answer = messages.instances(instances)
        if len(answer) > MAX_ANSWER:
            raise RpcError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"group {group.name}: {too_many_instances(len(instances), len(answer))}",
            )
        return answer

    def template_node_info(self, request: bytes) -> bytes:
        group = self._group(messages.read(pb.NodeGroupTemplateNodeInfoRequest, request).id)
        resolved, node_hash = group.status.resolved_template, _template_hash(group)
        if resolved is None:
            condition = group.condition(ConditionType.TEMPLATE_RESOLVED)
            raise _no_template(group, condition.message if condition else "it is new")
        has_node, topology = self._has_node(group), group.status.topology
        place = max(0, topology.next_place or 0) if topology is not None else 0
        known, version = self._templates.get(group.uid), (node_hash, has_node, place)
        if known is None or known[0] != version:
            overlay = _overlay(group)
            try:
                node = template_node(
                    resolved,
                    group=group.name,
                    uid=group.uid,
                    provider_id_prefix=self._store.provider_id_prefix,
                    overlay=overlay.with_a_node() if has_node else overlay,
                    clusterapi=bool(group.annotations.get(constants.CAPI_NAMESPACE_ANNOTATION)),
                    place=place,
                )
            except TemplateError as error:
                raise _no_template(group, str(error)) from error
            known = self._templates[group.uid] = (version, messages.template(node))
        # While the group has nodes, cluster-autoscaler copies one of them instead of the template.
        if self._is_empty(group):
            self._sent[group.uid] = node_hash
        return known[1]

    def get_options(self, request: bytes) -> bytes:
        name, defaults = messages.options_request(request)
        group = self._group(name)
        options = group.spec.autoscaling.options if group.spec.autoscaling else None
        # For a group with options, CA >= 1.35 ignores MaxNodeStartupTime. So there is no answer if
        # none is set.
        if options is None or not options.model_fields_set:
            raise RpcError(StatusCode.UNIMPLEMENTED, "the group sets no autoscaling.options")
        wanted = merged_options(defaults, options)
        if should_hide_options(self._store, group, defaults=defaults, wanted=wanted):
            raise RpcError(StatusCode.UNIMPLEMENTED, "a node of the group is still starting")
        return messages.options(wanted)

    def gpu_label(self, _: bytes) -> bytes:
        self._need_sync()
        served = list(self._store.all_served())
        if not served:
            # CA asks until it gets an answer, then never again: an empty label would be used for
            # good.
            raise RpcError(StatusCode.UNIMPLEMENTED, "there is no group yet that sets gpuLabel")
        labels = gpu_labels(served)
        label = gpu_label_in_use(labels)
        others = [f"{name} ({other})" for name, other in labels.items() if other != label]
        if others:
            logger.warning(
                "groups disagree on autoscaling.gpuLabel, and cluster-autoscaler knows one: "
                "taken=%s others=%s",
                label,
                few_names(others),
            )
        return messages.gpu_label(label)

    def gpu_types(self, _: bytes) -> bytes:
        self._need_sync()
        return messages.gpu_types(gpu_types(self._store.all_served()))

    def node_price(self, request: bytes) -> bytes:
        call = messages.read(pb.PricingNodePriceRequest, request)
        name = call.node.annotations.get(constants.CA_NODE_GROUP_ANNOTATION, "")
        group = self._group(name)
        if group.spec.price is None:
            raise RpcError(StatusCode.UNIMPLEMENTED, f"group {name} has no spec.price")
        return messages.price(float(group.spec.price.hourly) * messages.hours(call))

    def pod_price(self, request: bytes) -> bytes:
        self._need_sync()
        if not any(group.spec.price for group in self._store.all_served()):
            raise RpcError(StatusCode.UNIMPLEMENTED, "no group has spec.price")
        call = messages.read(pb.PricingPodPriceRequest, request)
        return messages.price(pod_cost_hourly(messages.pod_of(call)) * messages.hours(call))

    async def _change(self, group: Group, decide: Decide, *, log: str) -> None:
        try:
            change = await self._writer.change(group.name, decide)
        except autoscaler.RefusedError as error:
            raise RpcError(_CODES[error.kind], str(error)) from error
        except NotServedError as error:
            raise RpcError(StatusCode.NOT_FOUND, str(error)) from error
        except BusyError as error:
            raise RpcError(StatusCode.ABORTED, str(error)) from error
        except InvalidError as error:
            raise RpcError(StatusCode.FAILED_PRECONDITION, error.message) from error
        except ForbiddenError as error:
            raise RpcError(StatusCode.PERMISSION_DENIED, str(error)) from error
        except KwokOperatorError as error:
            raise RpcError(StatusCode.UNAVAILABLE, str(error)) from error
        if change is not None:
            logger.info("%s: group=%s target=%d", log, group.name, change.target)

    def _group(self, name: str) -> Group:
        self._need_sync()
        group = self._store.served(name)
        if group is not None:
            return group
        known = self._store.known(name)
        if known is None:
            raise RpcError(StatusCode.NOT_FOUND, f"there is no group {name}")
        why = "is paused" if known.spec.paused else "is not for cluster-autoscaler"
        remedy = "set spec.paused to false" if known.spec.paused else "give it spec.autoscaling"
        raise RpcError(StatusCode.NOT_FOUND, f"group {name} {why}; {remedy}")

    def _need_sync(self) -> None:
        if not self._store.synced:
            raise RpcError(StatusCode.UNAVAILABLE, "groups and nodes are still being listed")

    def _warn(self, group: Group) -> None:
        """Logs warnings about a group's settings; the same warnings only once."""
        sentences = cautions(group.spec)
        if sentences != self._warned.get(group.uid, ()):
            self._warned[group.uid] = sentences
            for sentence in sentences:
                logger.warning("group=%s: %s", group.name, sentence)

    def _victim(self, group: Group, node: pb.ExternalGrpcNode) -> autoscaler.Victim:
        name = self._store.node_of(group, node.providerID)
        if name is None or (node.name not in (name, node.providerID)):
            raise RpcError(
                StatusCode.INVALID_ARGUMENT,
                f"{node.name} ({node.providerID}) is no node of group {group.name}; none goes",
            )
        return autoscaler.Victim(
            name, failed=node.annotations.get(FAKE_NODE_REASON) == CREATE_ERROR
        )

    def _provider_id(self, group: Group, serial: int) -> str:
        node = self._store.node(group, serial)
        if node is not None:
            return node.provider_id
        return f"{self._store.provider_id_prefix}{group.names.name(serial)}"

    def _state(self, group: Group, serial: int) -> pb.InstanceStatus.InstanceState:
        return messages.RUNNING if self._store.is_running(group, serial) else messages.CREATING

    def _has_node(self, group: Group) -> bool:
        """Whether the group has a node and its template depends on that. Only with the annotation
        for scaling from zero does a template depend on whether the group has a node."""
        return constants.FROM_ZERO_ANNOTATION in group.annotations and self._store.has_node(group)

    def _is_empty(self, group: Group) -> bool:
        fleet = self._store.fleet(group)
        return not (fleet.target or fleet.present or fleet.leaving or fleet.pending)


def _node_group(group: Group) -> pb.NodeGroup:
    bounds = group.spec.autoscaling
    assert bounds is not None
    most = _INT32_MAX if bounds.max_size is None else bounds.max_size
    ready = f"{group.status.ready_replicas} of {group.status.target_size or 0} nodes are usable"
    annotated = whole_number(group.annotations.get(constants.CA_MIN_SIZE_ANNOTATION, "")) or 0
    least = max(bounds.min_size, min(annotated, most))
    return pb.NodeGroup(id=group.name, minSize=least, maxSize=most, debug=ready)


def instance_name(store: Store, node: pb.ExternalGrpcNode) -> str:
    """Returns the name of the instance that cluster-autoscaler means by `node`. For an instance
    without a Node, `node` is a placeholder whose name is the instance's providerID."""
    if node.name == node.providerID:
        return node.providerID.removeprefix(store.provider_id_prefix)
    return str(node.name)


def _failure(group: Group) -> messages.InstanceFailure | None:
    """Returns why the group's instances can't be created now; None if they can."""
    stalled = group.condition(ConditionType.STALLED)
    if stalled is None or stalled.status != "True" or stalled.reason != "Refused":
        return None
    return messages.InstanceFailure(stalled.reason, stalled.message)


def _obstacle(group: Group) -> messages.InstanceFailure | None:
    """Returns why the operator requests no more instances of the group. None if nothing limits the
    group, or if the operator has not seen the latest spec yet."""
    limited = group.condition(ConditionType.SCALING_LIMITED)
    seen = group.status.observed_generation == group.generation
    if not seen or limited is None or limited.reason not in WAITING:
        return None
    return messages.InstanceFailure(
        limited.reason, limited.message, messages.InstanceErrorClass.OUT_OF_RESOURCES
    )


def _unusable_template(group: Group) -> str | None:
    """Returns why the group's template can't make nodes now; None if it can."""
    resolved = group.condition(ConditionType.TEMPLATE_RESOLVED)
    return resolved.message if resolved is not None and resolved.status == "False" else None


def _template_hash(group: Group) -> str:
    """Returns a text that changes whenever the template for cluster-autoscaler changes."""
    marks = (group.annotations.get(key, "") for key in _TEMPLATE_MARKS)
    return "".join((group.status.template_hash or "", *marks))


def _overlay(group: Group) -> TemplateOverlay:
    text = group.annotations.get(constants.FROM_ZERO_ANNOTATION)
    if text is None:
        return NO_OVERLAY
    try:
        return read_overlay(text)
    except ValueError as error:
        logger.warning(
            "its annotation is ignored: group=%s annotation=%s reason=%s",
            group.name,
            constants.FROM_ZERO_ANNOTATION,
            one_line(error, limit=300),
        )
        return NO_OVERLAY


def _no_template(group: Group, why: str) -> RpcError:
    return RpcError(
        StatusCode.FAILED_PRECONDITION, f"group {group.name} has no usable template: {why}"
    )
