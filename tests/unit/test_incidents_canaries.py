"""Imports of files keep what an import of a cluster keeps, and nothing else, in any form of dump.

The cluster has a canary in each field: beside the fields of each object and of all its parts, and
in place of each text that isn't kept. Under other names, each name has one, too.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kwok_operator.cli.main import main
from tests.bench.bigcluster import BigCluster

Json = dict[str, Any]
CANARY: Final = "zzcanary"
CLUSTER: Final = BigCluster(nodes=3, pods=60)
ALIKE: Final = 4
"""Of each kind of object, and of pods of each kind of owner, there are so many at most."""
NAMES: Final = re.compile(r"\b(web|db|daemon|node|bare|job|pool|team)-(?=\d)")
_KEPT: Final = (
    r"apiVersion|kind|.*Timestamp|.*Time",
    r"metadata\.(name|namespace|uid|labels\..*|annotations\.cluster-autoscaler.*)",
    r"metadata\.ownerReferences\.[0-9]+\.(apiVersion|kind|name|uid)",
    r"status\.(phase|conditions\.[0-9]+\.(type|status|lastTransitionTime|lastHeartbeatTime))",
    r"status\.(allocatable|capacity)\..*",
    r"spec\.(nodeName|schedulerName|providerID|serviceName|minAvailable|maxUnavailable)",
    r"spec\.(taints|tolerations|topologySpreadConstraints)\..*",
    r"spec\.(.*\.)?(matchLabels|requests|limits)\..*",
    r"spec\.template\..*labels\..*",
    r".*\.protocol",
)
_IS_KEPT: Final = re.compile("|".join(f"(?:{each})" for each in _KEPT)).fullmatch


def planted(value: Any, path: str = "") -> Any:
    """With canaries: where a template of pods is, the rules of pods apply."""
    match value:
        case dict():
            found = {key: planted(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
            free = re.search(r"labels|annotations|matchLabels|resources|capacity|allocatable", path)
            return found if free else found | {CANARY: f"{CANARY} field", "x": [CANARY]}
        case list():
            return [planted(each, f"{path}.{n}") for n, each in enumerate(value)]
        case str():
            bare = path.removeprefix("spec.template.")
            return value if _IS_KEPT(path) or _IS_KEPT(bare) else f"{CANARY} {len(path)}"
    return value


def objects() -> Iterator[Json]:
    there = Counter[tuple[str, str]]()
    for path, (kind, count, make) in CLUSTER.kinds.items():
        version = path.split("/")[2:-1]
        for number in range(count):
            made = make(number)
            owners = made["metadata"].get("ownerReferences") or [{"kind": ""}]
            there[kind, owners[0]["kind"]] += 1
            if there[kind, owners[0]["kind"]] > ALIKE:
                continue
            made = planted(made)
            made["metadata"].setdefault("annotations", {})["note.example"] = CANARY
            yield {"apiVersion": "/".join(version), "kind": kind, **made}


def snapshot(objects: list[Json], folder: Path) -> list[Path]:
    by_kind = defaultdict(list)
    for each in objects:
        by_kind[each["kind"]].append(each)
    on = defaultdict(list)
    for pod in by_kind["Pod"]:
        on[pod["spec"]["nodeName"]].append(pod)
    nodes = [{"Node": n, "Pods": on[n["metadata"]["name"]], "X": CANARY} for n in by_kind["Node"]]
    body = {
        "NodeList": nodes,
        "UnscheduledPodsCanBeScheduled": None,
        "StartTimestamp": "2026-01-01T00:00:00Z",
        "EndTimestamp": "2026-01-01T00:00:01Z",
        "TemplateNodes": {"asg": nodes[0]},
        CANARY: CANARY,
    }
    rest = [each for each in objects if each["kind"] not in ("Node", "Pod")]
    (folder / "snapshotz.json").write_text(json.dumps(body))
    return [folder / "snapshotz.json", *as_yaml(rest, folder)]


def as_yaml(objects: list[Json], folder: Path) -> list[Path]:
    made = {"apiVersion": "v1", "kind": "List", "items": objects, "metadata": {CANARY: CANARY}}
    (folder / "all.yaml").write_text(yaml.safe_dump(made))
    return [folder / "all.yaml"]


def cluster_info(objects: list[Json], folder: Path) -> list[Path]:
    """As `kubectl cluster-info dump --output-directory` writes it."""
    dump = folder / "dump"
    of: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for each in objects:
        of[each["metadata"].get("namespace", ""), each["kind"]].append(each)
    for (namespace, kind), items in of.items():
        path = dump / namespace / f"{kind.lower()}s.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"kind": f"{kind}List", "apiVersion": "v1", "items": items}))
    log = dump / "shop" / "web-0" / "logs.txt"
    log.parent.mkdir(parents=True)
    log.write_text(f"==== START logs for container {CANARY} ====\n{CANARY}\n")
    return [dump]


def must_gather(objects: list[Json], folder: Path) -> list[Path]:
    """As `oc adm must-gather` writes it: objects of a cluster alone, others in lists."""
    top = folder / "must-gather.local.1" / "image-sha256"
    of: dict[Path, list[Json]] = defaultdict(list)
    for each in objects:
        metadata, group = each["metadata"], each["apiVersion"].rpartition("/")[0] or "core"
        plural = f"{each['kind'].lower()}s"
        if namespace := metadata.get("namespace"):
            of[top / "namespaces" / namespace / group / f"{plural}.yaml"].append(each)
        else:
            name = f"{metadata['name']}.yaml"
            path = top / "cluster-scoped-resources" / group / plural / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(each))
    for path, items in of.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    return [top.parent]


@pytest.mark.parametrize("anonymize", [False, True], ids=["names kept", "other names"])
@pytest.mark.parametrize("form", [snapshot, as_yaml, cluster_info, must_gather])
def test_no_canary_comes_out(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    form: Callable[[list[Json], Path], list[Path]],
    anonymize: bool,
) -> None:
    made = list(objects())
    text = json.dumps(made)
    if anonymize:
        text = NAMES.sub(lambda found: f"{found[1]}-{CANARY}-", text)
    files = form(json.loads(text), tmp_path)
    output = tmp_path / "out"
    given = [f"--from={each}" for each in files]
    code = main(["import", *given, f"--output={output}", *["--anonymize"] * anonymize])
    said = capsys.readouterr()
    assert code == 0, said
    ledger = json.loads((output / "ledger.json").read_text())
    kinds = Counter(each["kind"] for each in made)
    assert ledger["read"]["Node"] == 3 and ledger["read"]["Pod"] == kinds["Pod"], ledger["read"]
    for path in sorted(each for each in output.rglob("*") if each.is_file()):
        assert CANARY not in path.read_text(), path.name
