"""What `kwok-operator import` was asked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """The flags, checked."""

    output: Path
    kubeconfig: str | None = None
    context: str | None = None
    requests_per_second: float = 10.0
    group_by: tuple[str, ...] = ()
    prices: Path | None = None
    namespaces: frozenset[str] = frozenset()
    """Empty means all."""
    excluded_namespaces: frozenset[str] = frozenset()
    keep_images: bool = False
    anonymize: bool = False
    anonymize_table: Path | None = None
    """None means beside the output."""
