"""`kwok-operator import --anonymize`, from one control plane into another:

- nobody's names are in the folder; API servers take what comes out, and the same pods run on as
  many nodes
"""

import json
from collections import Counter
from pathlib import Path

from tests.e2e.api import GROUPS
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import own_cluster
from tests.e2e.test_import import nodes_by_pool, reader, run_import, running, source

__all__ = ["source"]


def test_a_cluster_runs_again_under_other_names(source: Kubectl, tmp_path: Path) -> None:
    ran, pools = running(source), nodes_by_pool(source)
    output = tmp_path / "rehearsal"
    run_import(reader(source, tmp_path), output, "--anonymize")
    table = json.loads((tmp_path / "rehearsal.names.json").read_text())["names"]
    private = {name for names in ran for name in names} & set(table.values())
    assert private
    text = "\n".join(path.read_text() for path in output.rglob("*") if path.is_file())
    words = set(text.replace("/", " ").replace('"', " ").replace("'", " ").split())
    assert private.isdisjoint(words)
    with own_cluster("import-to", directory=tmp_path) as target:
        target.harness.ensure()
        kubectl = target.kubectl
        kubectl("apply", f"--kustomize={output}", timeout=300)
        groups, _ = kubectl.api.list(GROUPS)
        assert sum(group["spec"]["targetSize"] for group in groups) == sum(pools.values())
        eventually(
            lambda: Counter(running(kubectl).values()),
            lambda found: sum((Counter(ran.values()) - found).values()) <= len(ran) / 50,
            describe="the same pods run again",
            timeout=180,
        )
