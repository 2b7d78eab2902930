"""What a scenario expects, and what it waits for: figures, Events, `kubectl wait`.

Owns the fields. Which figures there are is in `core/rehearsal/figurenames.py`; how they are worked
out of a recording, and whether an expectation holds, is the core's, too. In the recording's header
expectations are as `ScenarioPart.dump` gives them.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    WithJsonSchema,
    model_validator,
)

from kwok_operator.rehearsal.scenario.parts import (
    Bound,
    Line,
    PositiveSpan,
    ScenarioPart,
    Span,
    require_one,
)

DEFAULT_WAIT = 30.0

FigureName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.]+$", max_length=60)]


def _about(value: str) -> str:
    kind, *where = value.split("/")
    if not kind[:1].isupper() or not kind.isalnum():
        raise ValueError("begins with no kind; write it as in KwokNodeGroup or Pod/default")
    if len(where) > 2:
        raise ValueError("has more than Kind/NAMESPACE/NAME; take the rest out")
    return value


About = Annotated[Line, AfterValidator(_about)]
"""Which objects Events are about: kinds are written as the API server writes them."""


class Narrowing(ScenarioPart):
    """Whom a figure is about; without anything, all."""

    workload: Line | None = Field(
        default=None, description="A workload of the scenario, or Kind/NAMESPACE/NAME."
    )
    namespace: Line | None = Field(default=None, description="A namespace.")
    group: Line | None = Field(default=None, description="A KwokNodeGroup.")
    zone: Line | None = Field(default=None, description="A zone.")
    program: Line | None = Field(
        default=None, description="operator, shim, or a process that is a clusterAutoscaler."
    )


class ExpectedEvent(ScenarioPart):
    """Events that have all of these."""

    reason: Line | None = Field(default=None, description="Example: ScaleUpTimedOut.")
    type: Literal["Normal", "Warning"] | None = Field(default=None, description="Normal, Warning.")
    about: About | None = Field(
        default=None,
        description="Kind, Kind/NAMESPACE or Kind/NAMESPACE/NAME; Kind/NAME of what has no"
        " namespace. Example: Pod.",
    )
    source: Line | None = Field(
        default=None, alias="from", description="The component. Example: cluster-autoscaler."
    )
    message: Line | None = Field(default=None, description="A part of the sentence.")

    @model_validator(mode="after")
    def _any(self) -> "ExpectedEvent":
        if not self.model_fields_set:
            raise ValueError("says of no event which; give reason, type, about, from or message")
        return self


class AtTime(ScenarioPart):
    at: Span = Field(description="Example: 2m.")


def _when(value: Any) -> Any:
    if value in ("end", "always") or isinstance(value, dict | AtTime):
        return value
    raise ValueError("is neither end, nor always, nor a time such as {at: 2m}")


A_WORD, A_TIME = "[word]", "[time]"
"""Steps in the places of pydantic's errors."""

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


class _Compared(ScenarioPart):
    """A figure, or a count of Events, between bounds."""

    figure: FigureName | None = Field(
        default=None, description="Its name. Example: pendingSeconds.p95."
    )
    of: Narrowing | None = Field(
        default=None, description="Whom it is about. Default: all. Example: {workload: web}."
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

    def _check_bounds(self) -> None:
        kind = require_one(self, "figure", "event", "wait")
        bounds = [n for n in ("at_least", "at_most", "equals") if getattr(self, n) is not None]
        if kind == "wait" and bounds:
            raise ValueError("has a bound beside wait, which has none; take it out")
        if kind != "wait" and not bounds:
            raise ValueError(f"has no bound for its {kind}; give atLeast, atMost or equals")
        if self.equals is not None and len(bounds) > 1:
            raise ValueError("has equals beside another bound; keep one of them")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("can never hold, as atLeast is more than atMost; change one of them")
        if self.of is not None and kind != "figure":
            raise ValueError("of narrows a figure; take it out, or name a figure")


class ScenarioCondition(_Compared):
    """What something waits for: until it holds for the first time."""

    @model_validator(mode="after")
    def _whole(self) -> "ScenarioCondition":
        self._check_bounds()
        return self


class Expectation(_Compared):
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
    def _whole(self) -> "Expectation":
        self._check_bounds()
        if self.within is not None and self.wait is None:
            raise ValueError("within is for wait; take it out")
        if self.wait is not None and self.when == "always":
            raise ValueError("wait asks at one moment; say when: end, or {at: 2m}")
        return self
