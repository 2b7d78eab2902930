"""Templates of any JSON, for hypothesis."""

from typing import Any

from hypothesis import strategies as st

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
