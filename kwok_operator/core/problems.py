"""What is wrong with something that users wrote, as a value.

A problem is told where the object is (an Event, a log line, a metric, the output of `validate`),
and told again only when it has changed.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`reason` is one word for programs, `message` a sentence: field, value, remedy.

    `blocks` says that nothing may be concluded from what is missing: something could not be read.
    """

    reason: str
    message: str
    blocks: bool = True
