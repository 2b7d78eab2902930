"""Reads a cluster, and writes the folder that brings it into another."""

from kwok_operator.importing.settings import ImportSettings


async def run_import(settings: ImportSettings) -> int:
    """Returns the exit code."""
    raise NotImplementedError
