"""Hides installed libraries from `import`, as another library would load them just because they
exist.

They are hidden only within the block, and can be imported afterwards.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden_imports(*names: str) -> Iterator[None]:
    """Makes `import` of these top-level packages raise ModuleNotFoundError within the block."""
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    # None in sys.modules makes an import fail; mypy's types allow only modules there.
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(before)
