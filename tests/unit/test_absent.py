"""Libraries that are installed and not seen while another one is imported."""

import importlib
import sys

import pytest

from kwok_operator.operator.absent import absent


def test_what_is_absent_can_not_be_imported() -> None:
    with absent("colorsys"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("colorsys")


def test_and_is_there_afterwards() -> None:
    with absent("colorsys"):
        pass
    assert importlib.import_module("colorsys")


def test_what_was_there_before_is_the_same_afterwards() -> None:
    before = sys.modules["json"]
    with absent("json"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("json")
    assert sys.modules["json"] is before


def test_a_failure_within_leaves_nothing_behind() -> None:
    before = sys.modules["json"]
    with pytest.raises(KeyError), absent("json", "there-is-no-such-library"):
        raise KeyError
    assert sys.modules["json"] is before
    assert "there-is-no-such-library" not in sys.modules
