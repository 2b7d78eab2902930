"""Memory and CPU of the operator: at start, with N nodes, idle, after; and its start-up with N."""

from tests.bench.actors import Operator, running
from tests.bench.context import Context
from tests.bench.growth import Growth, steps


def run(context: Context) -> None:
    progress = context.progress(steps(context))
    with context.cluster() as bench:
        operator = Operator(bench, flags=context.options.operator_flags)
        try:
            with running(operator):
                Growth(context, bench, progress, operator, operator).run()
        except Exception as error:
            context.failed("what comes after the last figure", error)
    progress.end()
