"""The fields for what a scenario expects and waits for: figures, Events, `kubectl wait`.

An Expectation is read from a scenario or from the header of a recording, and judged unchanged. The
figures are in `judge/figures.py`.
"""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    StringConstraints,
    Tag,
    WithJsonSchema,
    model_validator,
)

from kwok_operator.errors import one_line
from kwok_operator.rehearsal.judge.figures import (
    EVENT_COUNT,
    FIGURES,
    Figure,
    FigureReading,
    FigureScope,
    in_words,
)
from kwok_operator.rehearsal.scenario.parts import (
    Bound,
    Line,
    PositiveSpan,
    ScenarioPart,
    Span,
    require_one,
)

if TYPE_CHECKING:
    from kwok_operator.rehearsal.judge.recording import EventLine

DEFAULT_WAIT = 30.0
_BOUNDS: Final = {"atLeast": "at least", "atMost": "at most", "equals": "exactly"}
_MOST_TEXT: Final = 500

FigureName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.]+$", max_length=60)]


def _about(value: str) -> str:
    kind, *where = value.split("/")
    if not kind[:1].isupper() or not kind.isalnum():
        raise ValueError("begins with no kind; write it as in KwokNodeGroup or Pod/default")
    if len(where) > 2:
        raise ValueError("has more than Kind/NAMESPACE/NAME; take the rest out")
    return value


About = Annotated[Line, AfterValidator(_about)]
"""The objects that Events are about, as KIND, KIND/NAMESPACE or KIND/NAMESPACE/NAME. Kinds are
written as the API server writes them. In names, * stands for any characters and ? for one.
"""
_ANY_OF: Final = (
    Field(min_length=1, max_length=200),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    PlainSerializer(lambda each: each[0] if len(each) == 1 else list(each)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 2_000},
                {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1, "maxLength": 2_000},
                    "minItems": 1,
                    "maxItems": 200,
                },
            ]
        }
    ),
)
"""A list of alternatives; a single one may be plain text."""


class ExpectedEvent(ScenarioPart):
    """Which Events are expected: those that match all fields."""

    reason: Line | None = Field(default=None, description="Example: ScaleUpTimedOut.")
    type: Literal["Normal", "Warning"] | None = Field(default=None, description="Normal, Warning.")
    about: Annotated[tuple[About, ...], *_ANY_OF] | None = Field(
        default=None,
        description="Kind, Kind/NAMESPACE or Kind/NAMESPACE/NAME; Kind/NAME of what has no"
        " namespace; * and ? stand for characters of a name. Of a list, one is enough."
        " Example: Pod/default/web-*.",
    )
    source: Line | None = Field(
        default=None, alias="from", description="The component. Example: cluster-autoscaler."
    )
    message: Annotated[tuple[Line, ...], *_ANY_OF] | None = Field(
        default=None, description="A part of the sentence. Of a list, one is enough."
    )

    @model_validator(mode="after")
    def _any(self) -> "ExpectedEvent":
        if not self.model_fields_set:
            raise ValueError("says of no event which; give reason, type, about, from or message")
        return self

    def matches(self, event: "EventLine") -> bool:
        said = self.message is None or any(part in event.message for part in self.message)
        return said and self._is_of(event)

    def nearly_matches(self, event: "EventLine") -> bool:
        """Whether an Event differs from the expected one only in its message."""
        return bool(self.reason and self.message) and self._is_of(event)

    def _is_of(self, event: "EventLine") -> bool:
        has = {"reason": event.reason, "type": event.type, "source": event.component}
        if any(getattr(self, key) not in (None, has[key]) for key in has):
            return False
        return self.about is None or any(_names(each, event.about) for each in self.about)

    def __str__(self) -> str:
        fields = (
            f"{key} {text if isinstance(text, str) else ' or '.join(text)}"
            for key, text in self.dump().items()
        )
        return f"Events with {', '.join(fields)}"


def _names(wanted: str, about: str) -> bool:
    """Whether `wanted` means the object `about`, which is KIND/NAMESPACE/NAME. `wanted` may have
    patterns (fnmatch) as its parts, and may leave out the last ones.
    """
    there, parts = about.split("/"), wanted.split("/")
    if there[1:2] == [""] and len(parts) == 2:
        del there[1]  # KIND/NAME, as the kind has no namespaces
    return len(parts) <= len(there) and all(map(fnmatchcase, there, parts))


class AtTime(ScenarioPart):
    at: Span = Field(description="Example: 2m.")


def _when(value: Any) -> Any:
    if value in ("end", "always") or isinstance(value, dict | AtTime):
        return value
    raise ValueError("is neither end, nor always, nor a time such as {at: 2m}")


A_WORD, A_TIME = "[word]", "[time]"
"""Steps that stand for a union's branch in the paths of pydantic's errors."""

When = Annotated[
    Annotated[Literal["end", "always"], Tag(A_WORD)] | Annotated[AtTime, Tag(A_TIME)],
    Discriminator(lambda value: A_WORD if isinstance(value, str) else A_TIME),
    BeforeValidator(_when),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["end", "always"]},
                {
                    "type": "object",
                    "properties": {"at": {"type": "string"}},
                    "required": ["at"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class Compared(ScenarioPart):
    """A figure, or a count of Events, between bounds; or a `kubectl wait`."""

    figure: FigureName | None = Field(
        default=None, description="Its name. Example: pendingSeconds.p95."
    )
    of: FigureScope = Field(
        default=FigureScope(),
        description="What it is narrowed to. Default: all. Example: {workload: web}.",
    )
    event: ExpectedEvent | None = Field(
        default=None, description="Events, which are counted. Example: {reason: ScaleUpTimedOut}."
    )
    at_least: Bound | None = Field(default=None, description="Example: 50, or 30s.")
    at_most: Bound | None = Field(default=None, description="Example: 50, or 30s.")
    equals: Bound | None = Field(default=None, description="Exactly so much. Example: 0.")
    wait: Line | None = Field(
        default=None,
        description="What `kubectl wait` takes. Example: kng/batch --for=condition=Ready.",
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        kind, bounds = require_one(self, "figure", "event", "wait"), self.bounds
        if kind == "wait" and bounds:
            raise ValueError("has a bound beside wait, which has none; take it out")
        if kind != "wait" and not bounds:
            raise ValueError(f"has no bound for its {kind}; give atLeast, atMost or equals")
        if self.equals is not None and len(bounds) > 1:
            raise ValueError("has equals beside another bound; keep one of them")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("can never hold, as atLeast is more than atMost; change one of them")
        if "of" in self.model_fields_set and kind != "figure":
            raise ValueError("of narrows a figure; take it out, or name a figure")
        return self

    @property
    def kind(self) -> str:
        return "figure" if self.figure else "event" if self.event else "wait"

    @property
    def bounds(self) -> dict[str, float]:
        """The given bounds, by their names in a scenario."""
        every = {"atLeast": self.at_least, "atMost": self.at_most, "equals": self.equals}
        return {key: number for key, number in every.items() if number is not None}

    @property
    def measured(self) -> Figure:
        """The figure that is compared. Raises KeyError if there is no such figure."""
        return FIGURES[self.figure] if self.figure else EVENT_COUNT

    @property
    def subject(self) -> str:
        """What is compared, in words."""
        if self.wait is not None:
            return f"kubectl wait {self.wait}"
        return (str(self.event) if self.event else f"{self.figure}") + (
            f" of {self.of}" if self.of.by else ""
        )

    @property
    def wanted(self) -> str:
        return " and ".join(
            f"{_BOUNDS[key]} {in_words(number, self.measured.unit, exact=True)}"
            for key, number in self.bounds.items()
        )

    def holds(self, number: float) -> bool:
        return (
            (self.at_least is None or number >= self.at_least)
            and (self.at_most is None or number <= self.at_most)
            and (self.equals is None or abs(number - self.equals) < 1e-6)
        )

    def holds_by_now(self, read: FigureReading) -> bool:
        """Whether a condition holds. An incomplete value is enough only if the only bound is
        `atLeast`, which it reaches already.
        """
        if read.value is None or (read.incomplete and self.bounds.keys() != {"atLeast"}):
            return False
        return self.holds(read.value)

    def is_broken_by(self, read: FigureReading) -> bool:
        """Whether the figure is outside its bounds already, whatever the missing part of its value
        is.
        """
        if read.value is None:
            return False
        if read.incomplete:
            return self.at_most is not None and read.value > self.at_most
        return not self.holds(read.value)

    def shown(self, number: float) -> str:
        """Returns a number as text: rounded, unless the rounded number is on the other side of a
        bound.
        """
        unit = self.measured.unit
        text = in_words(number, unit)
        rounded = float(text.split()[0].replace(",", "")) / (100 if unit == "share" else 1)
        if self.holds(rounded) == self.holds(number):
            return text
        return in_words(number, unit, exact=True)


class ScenarioCondition(Compared):
    """What something waits for: until it holds for the first time."""

    def __str__(self) -> str:
        wanted = f": {self.wanted}" if self.wanted else ""
        return one_line(f"{self.subject}{wanted}", limit=_MOST_TEXT)


class Expectation(Compared):
    """What must hold; one case of the verdict."""

    name: Line | None = Field(
        default=None, description="What the verdict calls it. Default: what it says."
    )
    when: When = Field(
        default="end",
        description="When it must hold: end, always, or at a time, such as {at: 2m}. Default: end.",
    )
    within: PositiveSpan | None = Field(
        default=None,
        description=f"With wait: how long it may take. Default: {DEFAULT_WAIT:g}s.",
    )

    @model_validator(mode="after")
    def _check_moment(self) -> Self:
        if self.within is not None and self.wait is None:
            raise ValueError("within is for wait; take it out")
        if self.wait is not None and self.when == "always":
            raise ValueError("wait asks at one moment; say when: end, or {at: 2m}")
        return self

    @property
    def always(self) -> bool:
        return self.when == "always"

    @property
    def at(self) -> float | None:
        return self.when.at if isinstance(self.when, AtTime) else None

    def __str__(self) -> str:
        """Returns the expectation's name; by default, a description of what it expects."""
        if self.name:
            return self.name
        if self.wait is not None:
            within = "" if self.within is None else f" within {self.within:g} s"
            return one_line(f"{self.subject}{within}", limit=_MOST_TEXT)
        at = "at the end" if self.at is None else f"at {self.at:g} s"
        moment = "always" if self.always else at
        return one_line(f"{self.subject}: {self.wanted}, {moment}", limit=_MOST_TEXT)
