"""A cluster whose workloads change, as its watches tell it, and one that a replay writes to."""

import copy
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kwok_operator.constants import REPLAYED_LABEL
from kwok_operator.importing.traces.cleaning import cleaner
from kwok_operator.importing.traces.replaying import Request
from tests.fakes.store import merge_patch

Json = dict[str, Any]

CLEAN = cleaner(places={})
KINDS = ("Deployment", "Job", "Pod")
_FITS = {
    "scale": ("Deployment", "Job"),
    "reshape": ("Deployment", "Pod"),
    "progress": ("Job",),
    "end": ("Pod",),
    "delete": KINDS,
}


class World:
    """The cluster that is recorded. Every change gives the event that a watch would."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self._serial = 0

    def create(self, kind: str, number: int, shape: int) -> tuple[str, Json]:
        self._serial += 1
        uid = f"uid-{self._serial}"
        template: Json = {
            "metadata": {"labels": {"app": f"a{shape}"}},
            "spec": {"containers": [{"name": "x", "image": "i", "command": ["secret"]}]},
        }
        metadata: Json = {"uid": uid, "namespace": f"ns{number % 2}", "generation": 1}
        body: Json = {"kind": kind, "metadata": metadata}
        if kind == "Pod":
            metadata |= {"generateName": "worker-", "name": f"worker-{self._serial:05}"}
            metadata |= template["metadata"]
            body |= {"spec": template["spec"], "status": {"phase": "Pending"}}
        else:
            metadata["name"] = f"{kind.lower()}-{number}"
            size = "replicas" if kind == "Deployment" else "parallelism"
            body["spec"] = {size: 1, "template": template}
            if kind == "Deployment":
                body["spec"]["selector"] = {"matchLabels": {"app": "a"}}
            else:
                body["spec"]["completions"] = 5
            for other in self.objects.values():
                if other["kind"] == kind and other["metadata"]["name"] == metadata["name"]:
                    return "", {}
        self.objects[uid] = body
        return "ADDED", copy.deepcopy(body)

    def change(self, action: str, number: int, value: int) -> tuple[str, Json]:
        """Of one of those that it fits; no event if there is none."""
        fit = [uid for uid, body in self.objects.items() if body["kind"] in _FITS.get(action, ())]
        if not fit:
            return "", {}
        uid = fit[number % len(fit)]
        body = self.objects[uid]
        match action, body["kind"]:
            case "scale", "Deployment":
                body["spec"]["replicas"] = value
            case "scale", "Job":
                body["spec"]["parallelism"] = value
            case "reshape", "Deployment":
                template = body["spec"]["template"]
                template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(value)}}
                template["spec"]["nodeSelector"] = {} if value % 2 else {"zone": str(value)}
            case "reshape", "Pod":
                body["metadata"]["labels"] = {f"key-{value}": "v"}
            case "progress", "Job":
                body.setdefault("status", {})["succeeded"] = value + 1
                body["metadata"]["labels"] = {"progress": str(value)}
            case "end", "Pod":
                body["status"]["phase"] = "Succeeded" if value % 2 else "Failed"
            case "delete", _:
                return "DELETED", self.objects.pop(uid)
        body["metadata"]["generation"] += 1
        return "MODIFIED", copy.deepcopy(body)

    def of_kind(self, kind: str) -> list[Json]:
        return [copy.deepcopy(body) for body in self.objects.values() if body["kind"] == kind]

    def expected(self, *, silent: Iterable[str] = ()) -> "Counter[str]":
        """What a replay should have made of it by now; of `silent` the trace tells nothing."""
        found = []
        for uid, body in self.objects.items():
            if uid in silent:
                continue
            phase = body.get("status", {}).get("phase")
            unfinished = {k: v for k, v in body.items() if k != "status"}
            manifest = CLEAN(body["kind"], unfinished)
            assert manifest is not None
            manifest["metadata"].setdefault("labels", {})[REPLAYED_LABEL] = "true"
            found.append(_told(manifest, phase if phase in ("Succeeded", "Failed") else ""))
        return Counter(found)

    def ended(self) -> set[str]:
        phases = ("Succeeded", "Failed")
        return {
            u for u, body in self.objects.items() if body.get("status", {}).get("phase") in phases
        }


class Played:
    """The cluster that a replay writes to."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}

    def take(self, request: Request) -> None:
        if request.key.kind in ("Namespace", "ServiceAccount"):
            return
        path = request.path
        if request.method == "POST":
            assert request.body is not None
            path = f"{path}/{request.body['metadata']['name']}"
            assert path not in self.objects, "it is there already"
            self.objects[path] = request.body
        elif request.method == "DELETE":
            del self.objects[path]
        elif "?" not in path:
            assert request.body is not None
            path = path.removesuffix("/status")
            self.objects[path] = merge_patch(self.objects[path], request.body)

    def state(self, *, but_ended: bool = False) -> "Counter[str]":
        found = []
        for body in self.objects.values():
            phase = body.get("status", {}).get("phase", "")
            if not (but_ended and phase):
                found.append(_told({k: v for k, v in body.items() if k != "status"}, phase))
        return Counter(found)


def _told(manifest: Json, phase: str) -> str:
    """An object without what a replay makes up."""
    manifest = copy.deepcopy(manifest)
    if manifest["kind"] == "Pod":
        assert len(manifest["metadata"]["name"]) == len("worker-12345")
        manifest["metadata"]["name"] = "worker-"
    # What is left to do of a Job depends on when it is looked at.
    manifest["spec"].pop("completions", None)
    return json.dumps([manifest, phase], sort_keys=True)
