"""The checked flags of `kwok-operator import`, `record` and `replay`."""

from dataclasses import dataclass
from pathlib import Path

from kwok_operator.importing.nodes.maxsize import MaxSize


@dataclass(frozen=True, slots=True)
class ImportSettings:
    output: Path
    dumps: tuple[Path, ...] = ()
    """Files and folders that are read instead of a live cluster."""
    logs: tuple[Path, ...] = ()
    """Logs of cluster-autoscaler, which show what it decided."""
    kubeconfig: str | None = None
    context: str | None = None
    requests_per_second: float = 10.0
    group_by: tuple[str, ...] = ()
    prices: Path | None = None
    namespaces: frozenset[str] = frozenset()
    """Namespaces to import; all if empty."""
    excluded_namespaces: frozenset[str] = frozenset()
    max_size: MaxSize | None = None
    """The maximum size of groups whose bounds are unknown; None if they get none."""
    hpas: bool = False
    """Whether HorizontalPodAutoscalers are imported. If not, their workloads keep their size."""
    keep_images: bool = False
    anonymize: bool = False
    anonymize_table: Path | None = None
    """The path of the table of names; None for a file beside the output."""


@dataclass(frozen=True, slots=True)
class RecordSettings:
    output: Path
    kubeconfig: str | None = None
    context: str | None = None
    requests_per_second: float = 10.0
    seconds: float | None = None
    """The length of the recording in seconds; None: until SIGTERM or SIGINT."""
    rotate_bytes: int | None = None
    rotate_seconds: float | None = None
    keep_images: bool = False
    anonymize: bool = False
    anonymize_table: Path | None = None
    """The path of the table of names; None for a file beside the output."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    paths: tuple[Path, ...]
    speed: float = 1.0
    since: float = 0.0
    """Replay starts at this second of the trace: objects that exist then are created at once."""
    seed: str = ""
    namespace_prefix: str = ""
    kubeconfig: str | None = None
    context: str | None = None
    into_recorded_cluster: bool = False
