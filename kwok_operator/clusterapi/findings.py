"""What users should know about an object of theirs before production tells them."""

from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class CapiFinding:
    """`reason` is one word for programs, `message` a sentence: field, value, what CA does, remedy.

    `about` is the object as CA calls it, `path` where in it the field stands. A `note` says what is
    so, and that nothing has to be done.
    """

    reason: str
    message: str
    about: str
    path: Path = ()
    note: bool = False
