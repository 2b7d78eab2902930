"""A table of rows of one kind as one test: the test runs for each row, a failure names its row.

Fixtures are those of the one test, so all rows share them. Where each row is a case of its own,
`parametrize` says so better.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def each_row(names: str, table: Iterable[Any]) -> Callable[[Test], Test]:
    """Calls a test with each row of a table, as the arguments of these names."""
    fields, listed = names.split(), list(table)
    assert listed

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*self: Any, **fixtures: Any) -> None:
            for row in listed:
                values = row if len(fields) > 1 else (row,)
                try:
                    test(*self, **dict(zip(fields, values, strict=True)), **fixtures)
                except BaseException as failure:
                    failure.add_note(f"in the row {row!r:.500}")
                    raise

        signature = inspect.signature(test)
        fixtures = [p for name, p in signature.parameters.items() if name not in fields]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate
