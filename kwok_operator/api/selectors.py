"""Conditions on labels, in the form that Kubernetes uses."""

from enum import StrEnum

from pydantic import Field

from kwok_operator.api.base import ApiModel, ApiRule, LabelValue, QualifiedName, rules


class SelectorOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class SelectorRequirement(ApiModel):
    model_config = rules(
        ApiRule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "matchExpressions: In and NotIn must have values, Exists and DoesNotExist must not",
            lambda it: (it["operator"] in ("In", "NotIn")) == bool(it.get("values")),
        )
    )

    key: QualifiedName = Field(description="The label's key.")
    operator: SelectorOperator = Field(description="In, NotIn, Exists or DoesNotExist.")
    values: tuple[LabelValue, ...] = Field(
        default=(),
        max_length=64,
        description="The values that In and NotIn compare with. Default: none.",
    )
