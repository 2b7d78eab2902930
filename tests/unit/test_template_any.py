"""Whatever JSON stands under template.node: a node that can be rendered, or a TemplateError.

- never another error, and the TemplateError names a field
- what comes out has no two taints of one key and effect, the guard taint among them, and the same
  resources in capacity and allocatable
- rendered it is valid JSON, and says the same
"""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.template import render, resolve

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def part(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of these fields, each as it should be or anything at all."""
    return st.fixed_dictionaries({}, optional={k: v | anything for k, v in fields.items()})


names = st.sampled_from(["a", "kubernetes.io/arch", "kubernetes.io/hostname", "kwok-provider"])
texts = st.dictionaries(names, st.text(max_size=6), max_size=3)
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "example.com/x"]),
    st.sampled_from(["4", "500m", "16Gi", "1e3", "0", "-1", "x"]) | st.integers(0, 9),
    max_size=4,
)
nodes = part(
    kind=st.just("Node"),
    metadata=part(name=st.text(max_size=9), uid=st.just("u"), labels=texts, annotations=texts),
    spec=part(
        providerID=st.text(max_size=9),
        taints=st.lists(part(key=names, effect=st.just("NoSchedule")), max_size=3),
    ),
    status=part(
        capacity=amounts,
        allocatable=amounts,
        addresses=st.lists(
            part(type=st.just("InternalIP"), address=st.text(max_size=9)), max_size=2
        ),
        nodeInfo=part(architecture=st.just("arm64"), machineID=st.text(max_size=9)),
    ),
)
shapes = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 10**15),
        "memory": st.sampled_from(["16Gi", "1e99", "99999999999999999999999999999Gi"]),
        "reserved": st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.sampled_from(["0", "100u", "4"]),
                "memory": st.sampled_from(["0", "1Gi", "500M", "1e98"]),
                "ephemeralStorage": st.sampled_from(["0", "1Gi"]),
            },
        ),
        "taints": st.just([{"key": "kwok-provider", "effect": "NoSchedule"}]),
    },
)


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
