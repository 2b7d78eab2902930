"""cluster-autoscaler's messages as bytes, read and written here by hand, field by field."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.shim import health, messages
from kwok_operator.shim.grpcwire import RpcError, StatusCode
from kwok_operator.shim.messages import HOUR, MINUTE, SECOND, GroupOptions
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.proto import health_pb2
from tests.fakes.protobuf import fields, put

WANTED = GroupOptions(
    scale_down_utilization_threshold=0.25,
    scale_down_gpu_utilization_threshold=0.75,
    scale_down_unneeded_time=90 * SECOND,
    scale_down_unready_time=0,
    max_node_provision_time=SECOND // 2,
    zero_or_max_node_scaling=True,
    ignore_daemon_sets_utilization=True,
)


def test_options_have_all_times_in_both_generations_and_so_has_zero() -> None:
    answer = fields(messages.options(WANTED))
    (given_options,) = answer[1]
    found = fields(given_options)
    assert (found[1], found[2], found[6], found[7]) == ([0.25], [0.75], [1], [1])
    assert [fields(found[n][0]) for n in (3, 5)] == [{1: [90 * SECOND]}, {1: [SECOND // 2]}]
    assert [fields(found[n][0]) for n in (8, 10)] == [{1: [90]}, {2: [SECOND // 2]}]
    # Present and empty: were it absent, the old generation would crash.
    assert found[4] == found[9] == [b""]


def old(*times: int) -> bytes:
    return b"".join(put(3 + i, put(1, time)) for i, time in enumerate(times))


def new(*times: int) -> bytes:
    parts = [put(1, time // SECOND) + put(2, time % SECOND) for time in times]
    return b"".join(put(8 + i, part) for i, part in enumerate(parts))


def defaults_of(given_defaults: bytes) -> GroupOptions:
    group, defaults = messages.options_request(put(1, "group") + put(2, given_defaults))
    assert group == "group"
    return defaults


@pytest.mark.parametrize("generation", [old, new])
def test_the_defaults_of_either_generation_are_read(generation: Callable[..., bytes]) -> None:
    thresholds = put(1, 0.25) + put(2, 0.75) + put(6, 1) + put(7, 1)
    assert defaults_of(thresholds + generation(90 * SECOND, 0, SECOND // 2)) == WANTED


@pytest.mark.parametrize(
    ("given_defaults", "provision_time"),
    [(b"", 15 * MINUTE), (old(MINUTE, MINUTE), 15 * MINUTE), (old(0, 0, 0), 0)],
    ids=["nothing", "one-is-missing", "zero"],
)
def test_a_missing_time_is_cas_default(given_defaults: bytes, provision_time: int) -> None:
    # 1.28 has no MaxNodeProvisionTime. Zero would have new nodes deleted in the next loop.
    assert defaults_of(given_defaults).max_node_provision_time == provision_time
    assert messages.options_request(put(1, "g")) == ("g", GroupOptions())
    assert defaults_of(old(1, 2, 3) + new(4, 5, 6)).scale_down_unready_time == 5, "the new one"


times = st.integers(-(2**63 - 1), 2**63 - 1) | st.integers(-2 * HOUR, 2 * HOUR)
any_options = st.builds(
    GroupOptions,
    scale_down_utilization_threshold=st.floats(allow_nan=False),
    scale_down_gpu_utilization_threshold=st.floats(0, 1),
    scale_down_unneeded_time=times,
    scale_down_unready_time=times,
    max_node_provision_time=times,
    zero_or_max_node_scaling=st.booleans(),
    ignore_daemon_sets_utilization=st.booleans(),
)


@given(wanted=any_options)
@settings(deadline=None)
def test_what_an_answer_says_a_request_says_too(wanted: GroupOptions) -> None:
    (given_options,) = fields(messages.options(wanted))[1]
    assert defaults_of(given_options) == wanted
    for hidden in ({3, 4, 5}, {8, 9, 10}):
        found = fields(given_options)
        parts = [put(n, v) for n, values in found.items() for v in values if n not in hidden]
        assert defaults_of(b"".join(parts)) == wanted


@given(seconds=st.integers(-(2**63), 2**63 - 1), nanos=st.integers(-(2**31), 2**31 - 1))
def test_a_time_beyond_all_measure_can_be_answered(seconds: int, nanos: int) -> None:
    defaults = defaults_of(put(8, put(1, seconds) + put(2, nanos)))
    assert messages.options(defaults)


NODE = put(1, "kwok:n") + put(2, "n")
POD = put(2, put(2, put(1, "web") + put(8, put(2, put(1, "cpu") + put(2, put(1, "500m"))))))
START, END = put(1, 1_700_000_000), put(1, 1_700_005_400)


READERS: list[Callable[[bytes], object]] = [
    messages.options_request,
    lambda data: messages.hours(messages.read(pb.PricingNodePriceRequest, data)),
    lambda data: messages.pod_of(messages.read(pb.PricingPodPriceRequest, data)),
    lambda data: messages.read(pb.NodeGroupForNodeRequest, data),
    lambda data: messages.read(pb.NodeGroupDeleteNodesRequest, data),
    lambda data: health.check(data, serving=True),
]
COMPLETE = put(1, NODE) + put(2, "group") + put(4, POD) + put(5, START)


@given(
    data=st.binary(max_size=40)
    | st.integers(0, len(COMPLETE)).map(lambda n: COMPLETE[:n])
    | st.tuples(st.integers(0, len(COMPLETE)), st.binary(max_size=3)).map(
        lambda cut: COMPLETE[: cut[0]] + cut[1] + COMPLETE[cut[0] + 1 :]
    )
)
@settings(deadline=None, max_examples=300)
def test_bytes_that_are_no_message_are_refused_and_nothing_else_happens(data: bytes) -> None:
    for reader in READERS:
        try:
            reader(data)
        except RpcError as error:
            assert error.code in (StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND)
            assert "\n" not in str(error)


def test_a_truncated_request_names_the_message_it_should_be() -> None:
    request = put(1, NODE)[:-1]
    with pytest.raises(RpcError, match=rf"the {len(request)} bytes are no clusterautoscaler\."):
        messages.read(pb.NodeGroupForNodeRequest, request)
    with pytest.raises(RpcError, match=r"are no kwok_operator\.kubernetes\.Pod"):
        messages.pod_of(pb.PricingPodPriceRequest(pod_bytes=b"\x0a"))


def test_health_is_that_of_the_server_at_each_check() -> None:
    synced: list[str] = []
    (check,) = health.health_handlers(lambda: bool(synced)).values()
    for status in (2, 1):
        for service in ("", *health.SERVICES):
            request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
            assert check(request) == put(1, status), service
        synced.append("groups and nodes")
    with pytest.raises(RpcError) as refused:
        check(put(1, "payments"))
    assert refused.value.code == StatusCode.NOT_FOUND
