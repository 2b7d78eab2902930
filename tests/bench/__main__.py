"""`make bench`: runs the cases, prints their tables, writes the results.

    python -m tests.bench [CASE ...] [--sizes N,N] [--rounds R] [--results DIR] ...

Tables go to standard output, what is being done to standard error. Every control plane and process
that a case has started is gone when it ends, also after Ctrl-C.
"""

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, Final

from kwok_operator.controlplane import ControlPlaneError, Settings, find_tools
from kwok_operator.reporter import Reporter
from tests.bench import options as command_line
from tests.bench import plots, results
from tests.bench.actors import ROOT
from tests.bench.cases import CASES
from tests.bench.context import Context

RESULTS: Final = ROOT / "bench-results"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 where a case failed or noted a failure, 130 after Ctrl-C."""
    options = command_line.parse(argv, cases={name: title for name, (title, _) in CASES.items()})
    # As an exception, so that clusters and processes are ended; a shell lets its background jobs
    # begin without SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    reporter = Reporter(sys.stderr)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    directory = Path(options.results).absolute() if options.results else RESULTS / now
    try:
        tools = find_tools(Settings.from_environ(os.environ), reporter=reporter)
        directory.mkdir(parents=True, exist_ok=True)
        facts = {"machine": results.machine(), "versions": results.versions(tools)}
        print(results.heading(facts), end="\n\n", flush=True)
        failed = False
        for name, limits in product(options.cases, options.limits):
            context = Context(
                name=name, limits=limits, options=options, directory=directory, reporter=reporter
            )
            failed |= run_case(context, facts=facts)
        reporter.say(f"results: {directory}")
        return int(failed)
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; finished cases are in {directory}", file=sys.stderr)
        return 130


def run_case(context: Context, *, facts: dict[str, Any]) -> bool:
    """Run one case, print and store what it found; returns whether something failed."""
    title, run = CASES[context.name]
    title = f"{title}; limits of Kubernetes' clients: {context.limits}"
    directory = context.directory
    context.reporter.say(f"{context.case}: {title}")
    began, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    try:
        run(context)
    except Exception as error:
        context.failed("the case ended early", error)
    found = results.Found(
        title=title,
        began=began,
        seconds=time.monotonic() - clock,
        options={key: value for key, value in dataclasses.asdict(context.options).items()},
        notes=context.notes,
        measures=context.measures,
    )
    results.store(directory, facts=facts, case=context.case, found=found)
    plots.write(results.load(directory / results.FILE), directory / "plots")
    text = found.as_text(context.case)
    print(text, flush=True)
    with (directory / results.TABLE).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return any(note.startswith("failed") for note in context.notes)


if __name__ == "__main__":
    sys.exit(main())
