"""Whatever JSON stands under template.node: a node that can be rendered, or a TemplateError."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.template import render, resolve
from tests.anytemplate import anything, nodes, shapes


@given(node=nodes | st.dictionaries(st.text(max_size=6), anything, max_size=4), shape=shapes)
@settings(deadline=None, max_examples=200)
def test_any_json_is_a_node_or_an_error_that_names_a_field(node: Any, shape: Any) -> None:
    try:
        given = node if isinstance(node, dict) else {"metadata": node}
        template = Template.model_validate({"node": given, "shape": shape})
        answer = resolve(template, guard=GuardTaint())
    except TemplateError as error:
        assert error.field.startswith("spec.template.")
        assert error.problem
        assert "\n" not in str(error)
        return
    taints = [(str(t.get("key")), str(t.get("effect"))) for t in answer["spec"]["taints"]]
    assert len(taints) == len(set(taints))
    assert ("kwok-provider", "NoSchedule") in taints
    assert answer["status"]["allocatable"].keys() == answer["status"]["capacity"].keys()
    rendered = render(answer, group="g", uid="u", provider_id_prefix="kwok:", endpoint=None)
    body = json.loads(rendered.body("n", requested_at="t", now="t", ready=False))
    assert body["status"]["capacity"] == answer["status"]["capacity"]
