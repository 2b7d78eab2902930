"""Times as Kubernetes' users write them: "90s", "10m", "1h30m"."""

import re

_PATTERN = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")


def parse_duration(text: str) -> int:
    """The time in seconds. Raises ValueError for anything else."""
    match = _PATTERN.fullmatch(text)
    if not match or not text:
        raise ValueError(f"{text!r} is not a time such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds
