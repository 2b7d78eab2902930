"""Reading what /metrics prints: of the API server, and of the operator. Pure.

The API server prints 15,000 lines; only those of the metric asked for are parsed.
"""

import re
from collections.abc import Iterator, Mapping

_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


def samples(text: str, metric: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Labels and value of each sample of a metric."""
    for line in text.splitlines():
        if not line.startswith(metric):
            continue
        rest = line[len(metric) :]
        if rest.startswith("{"):
            labels, _, value = rest.rpartition("} ")
            yield dict(_LABEL.findall(labels)), float(value.split()[0])
        elif rest.startswith(" "):
            yield {}, float(rest.split()[0])


def total(text: str, metric: str, **wanted: str) -> float:
    """The sum over the samples that have these labels; 0 where there are none."""
    return sum(
        value
        for labels, value in samples(text, metric)
        if all(labels.get(key) == expected for key, expected in wanted.items())
    )


def largest(text: str, metric: str) -> float | None:
    """The largest value that a gauge has, or that a histogram has seen: the bound of its bucket.

    None where there is no such metric or nothing was observed yet.
    """
    gauges = [value for name in (f"{metric}_max", metric) for _, value in samples(text, name)]
    if gauges:
        return max(gauges)
    buckets = sorted(
        (float(labels["le"]), value) for labels, value in samples(text, f"{metric}_bucket")
    )
    if not buckets or not buckets[-1][1]:
        return None
    return next(bound for bound, count in buckets if count == buckets[-1][1])
