"""Finds minimum and maximum size of imported groups, from cluster-autoscaler or Cluster API.

flags, status, provider config, Cluster API  --add_...-->  ScalingGroup
ScalingGroup, ImportedGroup  --settle-->  spec.autoscaling by group, notes

A scaling group is a node group of the autoscaler; several imported groups may belong to one.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.clusterapi.derive import derive as derive_scalables
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import Scalable, read_scalable
from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.documents import read_nodes
from kwok_operator.formats.untyped import as_map
from kwok_operator.formats.words import few_names
from kwok_operator.importing.nodes.castatus import (
    ScalingGroup,
    flags_of,
    groups_of_flags,
    groups_of_status,
    options_of_flags,
)
from kwok_operator.importing.nodes.maxsize import MaxSize
from kwok_operator.importing.nodes.nodepools import NodePools
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.sources.derive import ConfigMapTemplates, derive
from kwok_operator.sources.providerconfig import ProviderConfigError, read_config, templates_key

_STATUS: Final = Ref("ConfigMap", "kube-system", "cluster-autoscaler-status")
_PROVIDER: Final = Ref("ConfigMap", "", "kwok-provider-config")
_TEMPLATES: Final = Ref("ConfigMap", "", "kwok-provider-templates")
_FORMS: Final = (
    r"eks-{pool}-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}",
    r"eksctl-.+-nodegroup-{pool}-NodeGroup-.+",
    r"gke-.+-{pool}-[0-9a-f]{{8}}(-grp)?",
    r"aks-{pool}-[0-9]{{8}}-vmss",
    r"{pool}\..+",
)
"""Patterns of the names that EKS, eksctl, GKE, AKS and kOps give the scaling group of a pool."""
_AS_A_WORD: Final = r".*(?<![A-Za-z0-9]){pool}(?![A-Za-z0-9]).*"


@dataclass(frozen=True, slots=True)
class ImportedGroup:
    """A KwokNodeGroup made of `size` nodes. `known_as` are the names of scaling groups (node groups
    of an autoscaler) that labels, annotations or names of these nodes show.
    """

    name: str
    pool: str
    zone: str
    known_as: frozenset[str]
    size: int
    node_pool: str = ""
    """The Karpenter NodePool of the group's nodes; empty if there is none."""
    nodes: tuple[str, ...] = ()

    @property
    def ref(self) -> Ref:
        return Ref(constants.KIND, "", self.name)


@dataclass(slots=True)
class Bounds:
    """Collects bounds and assigns them to groups. All `add_` methods accept any value."""

    _groups: dict[str, ScalingGroup] = field(default_factory=dict)
    _options: list[Mapping[str, Any]] = field(default_factory=list)
    _scalables: dict[str, Scalable] = field(default_factory=dict)
    _notes: list[Note] = field(default_factory=list)
    _full: set[str] = field(default_factory=set)
    _least: dict[str, int] = field(default_factory=dict)
    node_pools: NodePools = field(default_factory=NodePools)
    max_size: MaxSize | None = None
    """The maximum for groups whose bounds are unknown; None if they get none."""

    def add_autoscaler(self, body: Any) -> None:
        """Adds the flags of a Deployment or Pod, if it runs cluster-autoscaler."""
        flags = flags_of(body)
        if flags is None:
            return
        metadata = as_map(body.get("metadata"))
        # In the API server's lists of a built-in kind, items have no `kind`.
        kind = str(body.get("kind") or "Deployment")
        ref = Ref(kind, *(str(metadata.get(k, "")) for k in ("namespace", "name")))
        self._add(*groups_of_flags(flags), ref=ref)
        options, problems = options_of_flags(flags)
        self._options.append(options)
        self._notes += [self._unreadable(ref, problem) for problem in problems]

    def add_status(self, text: Any) -> None:
        """Adds the text under the key `status` of the ConfigMap cluster-autoscaler-status."""
        self._add(*groups_of_status(text), ref=_STATUS)

    def add_provider_config(self, text: Any, templates: Mapping[str, Any] | None = None) -> None:
        """Adds the config of CA's kwok provider, with the data of its ConfigMap of templates."""
        try:
            config = read_config(str(text), where=str(_PROVIDER))
        except ProviderConfigError as error:
            self._notes.append(self._unreadable(_PROVIDER, str(error)))
            return
        data = {k: v for k, v in (templates or {}).items() if isinstance(v, str)}
        static = None
        if config.read_nodes_from.static:
            try:
                key = templates_key(config, data)
                documents = read_nodes(data[key], where=f"{_TEMPLATES}, key {key}")
            except ManifestError as error:
                self._notes.append(self._unreadable(_TEMPLATES, str(error)))
                return
            static = ConfigMapTemplates(_TEMPLATES.name, key, documents)
        derived = derive(config, owner=_PROVIDER.name, templates=static, live=[])
        for problem in derived.problems:
            if problem.reason == "InvalidCount":
                self._notes.append(self._unreadable(_TEMPLATES, problem.message))
        for group in derived.groups:
            wanted = group.manifest["spec"]["autoscaling"]
            self._one(ScalingGroup(group.value, wanted["minSize"], wanted["maxSize"]))

    def add_logged(
        self, groups: Iterable[ScalingGroup], *, full: Iterable[str], least: Mapping[str, int]
    ) -> None:
        """Adds what a log shows: scaling groups; `full`, the names of those that are at their
        maximum size; `least`, the minimum size of a node's group, by the name of a node that CA
        kept because of this minimum.
        """
        for scaling in groups:
            self._one(scaling)
        self._full.update(full)
        self._least.update(least)

    def add_scalable(self, body: Any) -> None:
        """Adds a MachineDeployment, MachineSet or MachinePool."""
        try:
            scalable = read_scalable(body if isinstance(body, Mapping) else {}, Keys())
        except ManifestError as error:
            self._notes.append(self._unreadable(Ref("MachineDeployment", "", ""), str(error)))
            return
        self._scalables[scalable.id] = scalable

    def settle(
        self, groups: Sequence[ImportedGroup]
    ) -> tuple[dict[str, dict[str, Any]], list[Note]]:
        """Returns spec.autoscaling of each group whose bounds are known, by the group's name; and
        notes.
        """
        notes = [*self._notes, *self._read_scalables()]
        shares: dict[str, list[ScalingGroup]] = defaultdict(list)
        for scaling in sorted(self._groups.values(), key=lambda each: each.name):
            members = members_of(scaling.name, groups)
            if not members:
                notes.append(Note(Ref("ScalingGroup", "", scaling.name), Reason.BOUNDS_UNMATCHED))
            if len(members) > 1:
                names = few_names([group.name for group in members])
                detail = f"{scaling.minimum} to {scaling.maximum}, among {names}"
                ref = Ref("ScalingGroup", "", scaling.name)
                notes.append(Note(ref, Reason.BOUNDS_SPLIT, detail=detail, count=len(members)))
            for group, share in zip(members, _dealt(scaling, members), strict=True):
                shares[group.name].append(share)
        settled: dict[str, dict[str, Any]] = {}
        full = {each.name for name in self._full for each in members_of(name, groups)}
        for group in groups:
            if group.name in shares:
                settled[group.name], widened = self._autoscaling(group, shares[group.name])
                notes += [widened] if widened else []
            elif group.name in full or self.max_size is not None:
                most = group.size if group.name in full else self._chosen(group)
                least = min(max((self._least.get(n, 0) for n in group.nodes), default=0), most)
                detail = f"{least} to {most}"
                reason = Reason.LOGGED_BOUNDS if group.name in full else Reason.MAX_SIZE
                notes.append(Note(group.ref, reason, "spec.autoscaling", detail))
                settled[group.name] = {"minSize": least, "maxSize": most}
            elif group.node_pool in self.node_pools:
                notes.append(Note(group.ref, Reason.SCALED_BY_KARPENTER, "spec.autoscaling"))
                settled[group.name] = {"minSize": 0}
            else:
                notes.append(Note(group.ref, Reason.NO_BOUNDS, "spec.autoscaling"))
        return settled, notes

    def _chosen(self, group: ImportedGroup) -> int:
        most = group.size if self.max_size is None else self.max_size.of(group.size)
        return min(most, MAX_TARGET_SIZE)

    def _autoscaling(
        self, group: ImportedGroup, shares: Sequence[ScalingGroup]
    ) -> tuple[dict[str, Any], Note | None]:
        least, most = (sum(n) for n in zip(*((s.minimum, s.maximum) for s in shares), strict=True))
        options = {**self._common_options(), **shares[0].options}
        note = None
        if most < group.size:
            detail = f"{most} becomes {group.size}"
            note = Note(group.ref, Reason.BOUNDS_WIDENED, "spec.autoscaling.maxSize", detail)
        most = min(max(most, group.size), MAX_TARGET_SIZE)
        bounds: dict[str, Any] = {"minSize": min(least, most), "maxSize": most}
        return bounds | ({"options": options} if options else {}), note

    def _common_options(self) -> dict[str, Any]:
        """Returns the options that are equal in all autoscalers that were added."""
        first = dict(self._options[0]) if self._options else {}
        return {k: v for k, v in first.items() if all(o.get(k) == v for o in self._options)}

    def _read_scalables(self) -> list[Note]:
        fleet = derive_scalables(self._scalables.values(), keys=Keys())
        for group in fleet.groups:
            if group.max_size > 0:
                self._one(
                    ScalingGroup(
                        group.scalable.id, group.min_size, group.max_size, dict(group.options)
                    )
                )
        return [
            self._unreadable(Ref(*finding.about.split("/", 2)), finding.message)
            for finding in fleet.findings
            if finding.reason in ("InvalidBounds", "InvalidOption")
        ]

    def _add(self, groups: Sequence[ScalingGroup], problems: Sequence[str], *, ref: Ref) -> None:
        for scaling in groups:
            self._one(scaling)
        self._notes += [self._unreadable(ref, problem) for problem in problems]

    def _one(self, scaling: ScalingGroup) -> None:
        # Flags, status and objects may describe the same group; the first that was added counts.
        self._groups.setdefault(scaling.name, scaling)

    def _unreadable(self, ref: Ref, problem: str) -> Note:
        return Note(ref, Reason.BOUNDS_UNREADABLE, detail=one_line(problem, limit=400))


def members_of(scaling: str, groups: Sequence[ImportedGroup]) -> list[ImportedGroup]:
    """Returns the groups whose nodes belong to the scaling group named `scaling`: those that have
    this name in `known_as`. If there are none, it returns those of the pool whose name is part of
    `scaling`; if zones of such groups are part of it, too, only the groups in these zones.
    """
    whole, last = scaling.lower(), scaling.rpartition("/")[2]
    known = [{name.lower() for name in group.known_as} for group in groups]
    for name in (whole, last.lower()):
        members = [g for g, names in zip(groups, known, strict=True) if name in names]
        if members:
            return members
    members = [group for group in groups if group.pool == last]
    pools = sorted({group.pool for group in groups}, key=lambda pool: (-len(pool), pool))
    for form in (*_FORMS, _AS_A_WORD):
        if members:
            break
        pool = next((p for p in pools if _fits(form, p, last)), None)
        members = [group for group in groups if group.pool == pool]
    # If each zone has a scaling group, its name or address names the zone.
    here = [group for group in members if group.zone and _fits(_AS_A_WORD, group.zone, scaling)]
    return here or members


def _fits(form: str, pool: str, name: str) -> bool:
    return pool in name and re.fullmatch(form.format(pool=re.escape(pool)), name) is not None


def _dealt(scaling: ScalingGroup, members: Sequence[ImportedGroup]) -> list[ScalingGroup]:
    """Divides a scaling group's minimum and maximum among the imported groups that it became, as
    evenly as possible. If the sums allow it, no group's minimum is above its size, and no group's
    maximum below its size.
    """
    sizes = [group.size for group in members]
    most = _deal(scaling.maximum, sizes, [MAX_TARGET_SIZE] * len(sizes))
    held = sizes if sum(sizes) >= scaling.minimum else most
    least = _deal(scaling.minimum, [0] * len(sizes), held)
    return [
        ScalingGroup(scaling.name, low, high, scaling.options)
        for low, high in zip(least, most, strict=True)
    ]


def _deal(total: int, floors: Sequence[int], ceilings: Sequence[int]) -> list[int]:
    """Divides `total` into shares that are as even as possible and not outside their floors and
    ceilings. Ignores floors or ceilings that `total` can't meet.
    """
    if sum(floors) > total:
        floors = [0] * len(floors)
    if sum(ceilings) < total:
        ceilings = [total] * len(ceilings)
    low, high = 0, total
    # The highest level to which all can be filled with what there is.
    while low < high:
        level = (low + high + 1) // 2
        if sum(_filled(level, floors, ceilings)) <= total:
            low = level
        else:
            high = level - 1
    shares = _filled(low, floors, ceilings)
    for place, ceiling in enumerate(ceilings):
        if sum(shares) < total and shares[place] == low < ceiling:
            shares[place] += 1
    return shares


def _filled(level: int, floors: Sequence[int], ceilings: Sequence[int]) -> list[int]:
    return [min(max(level, f), c) for f, c in zip(floors, ceilings, strict=True)]
