"""Libraries that are installed and not seen while another one is imported."""

import importlib
import sys

import pytest

from kwok_operator.operator.hiddenimports import hidden_imports


def test_what_is_absent_can_not_be_imported() -> None:
    with hidden_imports("colorsys"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("colorsys")


def test_and_is_there_afterwards() -> None:
    with hidden_imports("colorsys"):
        pass
    assert importlib.import_module("colorsys")


def test_what_was_there_before_is_the_same_afterwards() -> None:
    before = sys.modules["json"]
    with hidden_imports("json"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("json")
    assert sys.modules["json"] is before


def test_a_failure_within_leaves_nothing_behind() -> None:
    before = sys.modules["json"]
    with pytest.raises(KeyError), hidden_imports("json", "there-is-no-such-library"):
        raise KeyError
    assert sys.modules["json"] is before
    assert "there-is-no-such-library" not in sys.modules
