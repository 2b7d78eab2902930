"""Reads a cluster, and writes the folder that brings it into another."""

from kwok_operator.core.importing.ledger import Ledger
from kwok_operator.importing.progress import Progress
from kwok_operator.importing.settings import ImportSettings


async def run_import(settings: ImportSettings, *, progress: Progress) -> Ledger:
    """Raises KwokOperatorError where nothing was written."""
    raise NotImplementedError
