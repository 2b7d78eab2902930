"""Runs a cluster with the operator until this program ends: `python -m ... FOLDER`.

The cluster is set up as for a rehearsal. A line of JSON on standard output says where it is, or why
there is none.
"""

import asyncio
import json
import sys
from pathlib import Path

from kwok_operator.errors import KwokOperatorError
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.testbed import testbed
from kwok_operator.signals import cancelled_by_signals

_SCENARIO = {"name": "tests", "expect": [{"figure": "nodes.total", "atLeast": 0}]}
"""A scenario by which the cluster is set up. It is never played."""


def main(folder: Path) -> int:
    try:
        asyncio.run(_host(folder))
    except (KwokOperatorError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 2
    return 0


async def _host(folder: Path) -> None:
    with cancelled_by_signals():
        try:
            async with testbed(
                Scenario.model_validate(_SCENARIO),
                RehearseSettings(scenario=folder / "none"),
                logs=folder,
                find_program=lambda name: None,
                report=lambda line: None,
            ) as made:
                paths = {"kubeconfig": str(made.kubeconfig), "kubectl": str(made.kubectl.program)}
                print(json.dumps(paths), flush=True)
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            return


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
