"""Selects the pods that `kwok-operator why RECORDING POD` explains, and skips lines of other pods.

Most lines of a recording are about pods, and decoding their JSON takes most of the time. So lines
of other pods aren't decoded: they are recognised by their first bytes, whose form is fixed by
`encode` in rehearsal/judge/recording.py.
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
"""Matches the beginning of a line about a pod: its time, then the pod's name or, for an Event, the
name of the pod that it is about and the component that wrote it.
"""


class PodFilter:
    """The pods whose name or workload equals `query`, or whose name begins with it. An empty
    `query` selects all pods.
    """

    def __init__(self, query: str) -> None:
        self.query = query
        self._text = query.rpartition("/")[2].encode(errors="replace")
        self._known: set[bytes] = set()
        """Names of pods whose lines are all decoded: a line of theirs contains the text of the
        query, for example in the workload's name, or has escaped characters that may hide it.
        """
        self._components: set[bytes] = set()
        """Components that wrote Events about other pods. The first Event of each component is
        decoded, as it shows that the component runs.
        """

    def wanted(self, name: str, pod: PodState) -> bool:
        begins = name.startswith(self.query) or name.partition("/")[2].startswith(self.query)
        of = pod.workload.partition("/")[2]
        return begins or self.query == of or is_workload(self.query, pod.workload, pod.rehearsed)

    def skips(self, line: bytes) -> float | None:
        """Returns the time of a line that can be skipped; None for a line that must be decoded."""
        if (match := _OF_POD.match(line)) is None:
            return None
        t, pod, about, by = match.groups()
        if pod is None:
            if about in self._known or by not in self._components:
                self._components.add(by)
                return None
        elif pod in self._known or self._text in line or b"\\" in line:
            self._known.add(pod)
            return None
        return float(t)
