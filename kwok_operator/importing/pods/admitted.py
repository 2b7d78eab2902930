"""Copies the requests and sidecars that pods got on admission into the template of their workload.

Webhooks, pod autoscalers and LimitRanges change pods and not templates, and the cluster into which
workloads are imported may have none of them.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.shape import pod_shape

_CONTAINERS: Final = ("containers", "initContainers")
_COMPARED: Final = (*_CONTAINERS, "resources", "nodeSelector", "schedulerName", "runtimeClassName")
_NOBODY: Final = Ref("Pod", "", "")


class Admitted:
    """Compares the pods of each controller with the controller's template. Where they differ, the
    pods were changed on admission.
    """

    def __init__(self, *, keep_images: bool = False) -> None:
        self._keep_images = keep_images
        self._declared: dict[str, tuple[Ref, str]] = {}
        """By the uid of a controller: its workload, and the requests and containers of its template
        as text.
        """
        self._seen: dict[tuple[Ref, str], Counter[str]] = defaultdict(Counter)
        self._texts: dict[str, str] = {}
        """Each text once: thousands of controllers share few texts."""

    def declared(self, uid: str, workload: Ref, spec: object) -> None:
        """Adds the pod spec of a controller's template, to compare pods with it. Never raises."""
        self._declared[uid] = workload, self._comparable(spec)

    def seen(self, uid: str, spec: object) -> None:
        """Adds the spec of a pod; `uid` is its controller's. Never raises."""
        if uid in self._declared:
            self._seen[self._declared[uid]][self._comparable(spec)] += 1

    def settle(self, workload: Ref, spec: dict[str, Any]) -> list[Note]:
        """Changes the spec of a workload's pod template to the requests and containers that most of
        the workload's pods have. Returns notes on what was changed.

        Pods of an earlier template, which a rollout is about to replace, don't count.
        """
        declared = _text(spec)
        seen = self._seen.get((workload, declared), Counter({declared: 1}))
        most, count = min(seen.items(), key=lambda each: (-each[1], each[0] != declared, each[0]))
        before, after = json.loads(declared), json.loads(most)
        notes = []
        for name in _COMPARED:
            if before[name] == after[name]:
                continue
            spec.pop(name, None)
            if after[name] is not None:
                spec[name] = after[name]
            detail = f"{count} of {seen.total()} pods"
            notes.append(Note(workload, Reason.AS_ADMITTED, f"spec.template.spec.{name}", detail))
        return notes

    def _comparable(self, spec: object) -> str:
        shape, _ = pod_shape(spec, ref=_NOBODY, keep_images=self._keep_images)
        text = _text(shape)
        return self._texts.setdefault(text, text)


def _text(shape: Mapping[str, Any]) -> str:
    """Returns the fields of a pod's shape that admission may change, as a text. A limit without a
    request counts as a request, as the API server adds that request to pods, but not to templates.
    """
    compared: dict[str, Any] = {name: shape.get(name) for name in _COMPARED}
    for part in _CONTAINERS:
        compared[part] = [_with_requests(container) for container in shape.get(part, ())] or None
    return json.dumps(compared, sort_keys=True)


def _with_requests(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    requests = {**resources.get("limits", {}), **resources.get("requests", {})}
    whole = {**resources, "requests": requests} if requests else resources
    return {**container, "resources": whole}
