"""What holds for all tests: their order, how long each may take, how much is drawn.

Unit tests come first and faults last: what is wrong with a module alone is told at once. All unit
tests are core, a part of `make test`. A test that hangs fails. What hypothesis draws is the same in
every run, so that no commit fails for a draw; `--hypothesis-profile=search` draws anew.
"""

import gc
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, settings

from kwok_operator.controlplane.settings import KUBECONFIG_VARIABLE, PORTS_VARIABLE

SECONDS = {"unit": 120, "e2e": 600, "chaos": 900}
"""What a test of a folder may take, on a busy machine and with the cluster that it makes."""

ID_LENGTH = 60

_HERE = Path(__file__).parent
_FOLDERS = list(SECONDS)

# Tests read and write much YAML. In C it is the same, in a tenth of the time.
vars(yaml).update(SafeLoader=yaml.CSafeLoader, SafeDumper=yaml.CSafeDumper)

settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile("same")


# All tests that are collected stay to the end: looking through them again and again for garbage
# takes a tenth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    # Ctrl-C lets fixtures clean up and SIGTERM doesn't: treat them alike.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        if os.environ.get(KUBECONFIG_VARIABLE):
            raise pytest.UsageError(f"{KUBECONFIG_VARIABLE} is one cluster, no two tests share it")
        # Tests stop components for a while, and nobody may have taken their ports meanwhile.
        worker = int(config.workerinput["workerid"].removeprefix("gw"))
        os.environ[PORTS_VARIABLE] = str(20_000 + 1000 * worker)


def pytest_make_parametrize_id(val: object) -> str | None:
    """A short text for lists and objects, which pytest only numbers, and for long strings."""
    text = val
    if isinstance(val, dict | list | tuple):
        text = json.dumps(val, skipkeys=True, default=_name).replace('"', "")
    if not isinstance(text, str) or (text is val and len(text) <= ID_LENGTH):
        return None
    return text if len(text) <= ID_LENGTH else text[: ID_LENGTH - 3] + "..."


def _name(value: object) -> str:
    return getattr(value, "__name__", type(value).__name__)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """An event loop that has handled a signal leaves the system's way, which ends the process."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def folder(item: pytest.Item) -> str:
        return item.path.relative_to(_HERE).parts[0]

    items.sort(key=lambda item: _FOLDERS.index(folder(item)))
    for item in items:
        if folder(item) == "unit":
            item.add_marker(pytest.mark.core)
        if config.getoption("timeout") is None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS[folder(item)]))
