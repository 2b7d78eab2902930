"""What several commands share: the flag of the table of names, and output that may be cut short."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from kwok_operator.errors import SettingsError


def table_of_names(flags: argparse.Namespace) -> Path | None:
    """Returns the path in --anonymize-table, if any. Raises SettingsError without --anonymize."""
    if flags.anonymize_table and not flags.anonymize:
        raise SettingsError("--anonymize-table: says where a table is; give --anonymize, too")
    return Path(flags.anonymize_table) if flags.anonymize_table else None


def printed(command: Callable[[], int], *, cut: int) -> int:
    """Runs a command that prints, and returns its exit code; returns `cut` if the reader of its
    output ends first, as behind `| head`."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:  # Python would print an error at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return cut
    return code
