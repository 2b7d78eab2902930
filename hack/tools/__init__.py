"""Tools that only tests need: a directory with a go.mod for each set of them."""

from pathlib import Path
from typing import Final

METRICS_SERVER: Final = Path(__file__).parent / "metrics-server"
PROMETHEUS: Final = Path(__file__).parent / "prometheus"
