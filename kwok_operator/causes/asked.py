"""Which pods `kwok-operator why RECORDING POD` is about, and which lines can't matter for them.

Most lines of a recording are about pods. Those of other pods are skipped by a look at their bytes,
as `encode` writes them: to decode them takes most of the time.
"""

import re
from typing import Final

from kwok_operator.rehearsal.judge.figures import is_workload
from kwok_operator.rehearsal.judge.recording import PodState

_OF_POD: Final = re.compile(
    rb'\{"t":([0-9]+\.[0-9]+),'
    rb'(?:"pod":"([^"\\]+)","is":|'
    rb'"event":\{"type":"\w*","reason":"\w*","about":"Pod/([^"\\]+)","component":"([^"\\]*)",)'
)
"""The beginning of a line about a pod: its time, and the name of the pod or what an Event is about,
and who has written it.
"""


class AskedPods:
    """The pods whose name or workload is `query`, or whose name begins so; all if it is empty."""

    def __init__(self, query: str) -> None:
        self.query = query
        self._text = query.rpartition("/")[2].encode(errors="replace")
        self._known: set[bytes] = set()
        """The names of pods of which a line has the text, such as in the name of the workload, or
        may have it with escaped characters.
        """
        self._heard: set[bytes] = set()
        """Who has written an Event about another pod: the first one shows that it is there."""

    def wanted(self, name: str, pod: PodState) -> bool:
        begins = name.startswith(self.query) or name.partition("/")[2].startswith(self.query)
        of = pod.workload.partition("/")[2]
        return begins or self.query == of or is_workload(self.query, pod.workload, pod.rehearsed)

    def skips(self, line: bytes) -> float | None:
        """Returns the time of a line that can't matter for these pods; None for all others."""
        if (match := _OF_POD.match(line)) is None:
            return None
        t, pod, about, by = match.groups()
        if pod is None:
            if about in self._known or by not in self._heard:
                self._heard.add(by)
                return None
        elif pod in self._known or self._text in line or b"\\" in line:
            self._known.add(pod)
            return None
        return float(t)
