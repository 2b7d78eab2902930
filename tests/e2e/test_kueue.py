"""Kueue in a rehearsal, as people play it, with a stand-in. (Its program is in test_scenarios.)"""

import re
from pathlib import Path
from typing import Any

import yaml

from kwok_operator.controlplane.lifecycle import delete
from tests.e2e.api import Api
from tests.e2e.kubectl import eventually
from tests.e2e.rehearsals import GROUP, cluster_of, kueue_in, play
from tests.fakes.kueue import LOCAL_QUEUE, SERVED

JOBS: dict[str, Any] = {"kind": "Job", "count": 4, "each": 2, "pods": {"cpu": "100m"}}
LABEL = "kueue.x-k8s.io/queue-name"


def test_jobs_wait_for_their_queue(tmp_path: Path) -> None:
    whole = {
        "apply": [{"object": GROUP}],
        "processes": [kueue_in(tmp_path, objects=[{"object": LOCAL_QUEUE}])],
        "workloads": [
            {"name": "queued", "labels": {LABEL: "gpus"}, **JOBS},
            {"name": "lost", "labels": {LABEL: "nowhere"}, **JOBS},
        ],
        # Its webhooks and objects outlive the program, and so does its certificate.
        "timeline": [
            {
                "after": {"figure": "pods.succeeded", "of": {"workload": "queued"}, "atLeast": 4},
                "stop": "kueue",
            },
            {"start": "kueue"},
        ],
        "until": {"settledFor": "3s", "atMost": "3m"},
        "expect": [
            {"figure": "pods.succeeded", "of": {"workload": "queued"}, "equals": 4},
            {"figure": "pods.succeeded", "of": {"workload": "lost"}, "equals": 0},
            {"figure": "warnings", "equals": 0},
        ],
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(whole))
    done = play(path, tmp_path / "out", "--keep")
    said = done.stdout + done.stderr
    try:
        assert done.returncode == 0, said
        (kubeconfig,) = re.findall(r"export KUBECONFIG=(\S+)", said)
        api = Api(Path(kubeconfig))
        # Nothing calls the webhooks of a program that has ended.
        pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "none"}]}
        job = {"metadata": {"name": "a"}, "spec": {"template": {"spec": pod}}}
        api.create("/apis/batch/v1/namespaces/default/jobs?dryRun=All", job)
        queues = f"/apis/{SERVED}/localqueues"  # of which the API server forgets the conversion
        eventually(lambda: [*api.names(queues)] == ["gpus"], describe="the queue can be read")
    finally:
        delete(cluster_of(said))
