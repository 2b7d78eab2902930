"""Putting back what etcd holds, on an etcd that is a dictionary."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.controlplane import Cluster, ClusterError, Rewinder

OWN = "/registry/leases/kube-system/apiserver-x"
NOT_KEPT = ("/registry/events/", "/registry/leases/kube-node-lease/")
KEYS = st.sampled_from(
    [
        *(f"/registry/pods/default/{name}" for name in "abc"),
        *(f"/registry/pods/default/a{end}" for end in ("/", "0", "-b")),
        *(f"/registry/podtemplates/default/{name}" for name in "ab"),
        *(f"/registry/services/{kind}/default/a" for kind in ("specs", "endpoints")),
        *(f"/registry/kwok-operator.io/{kind}/a" for kind in ("kwoknodegroups", "others")),
        *("/registry/events/default/a", "/registry/events/shop/b", "/registry/health", OWN),
        "/registry/leases/kube-node-lease/a",
    ]
)


def plain(text: str) -> str:
    return base64.b64decode(text).decode()


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class FakeEtcd(Rewinder):
    """What etcd holds: the value and the revision of each key."""

    def __init__(self, holds: Mapping[str, str]) -> None:
        self.revision = 0
        self.holds: dict[str, tuple[str, int]] = {}
        self._kept = {}
        self._cluster = Cluster(name="it", kubeconfig=Path("k"), kubectl=Path("k"))
        self.writes_on = False
        self.change(holds, ())

    def change(self, put: Mapping[str, str], delete: Any) -> None:
        for key, value in put.items():
            self.revision += 1
            self.holds[key] = (value, self.revision)
        for key in delete:
            self.holds.pop(key, None)

    def values(self) -> dict[str, str]:
        return {key: value for key, (value, _) in self.holds.items()}

    def _request(self, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if what == "range" and body.get("count_only"):
            return {"count": str(len(self.holds))}
        if what == "range":
            return {
                "kvs": [
                    {"key": packed(key), "value": packed(value), "mod_revision": str(revision)}
                    for key, (value, revision) in sorted(self.holds.items())
                    if plain(body["key"]) <= key < plain(body["range_end"])
                ]
            }
        assert len(body["success"]) <= 128
        assert len(json.dumps(body)) * 3 / 4 < 1.5 * 1024**2
        for operation in body["success"]:
            ((name, given),) = operation.items()
            if name == "request_put":
                self.change({plain(given["key"]): plain(given["value"])}, ())
            else:
                first = plain(given["key"])
                end = plain(given["range_end"]) if "range_end" in given else f"{first}\0"
                self.change({}, [key for key in self.holds if first <= key < end])
        if self.writes_on:
            self.change({"/registry/pods/default/new": "x"}, ())
        return {}

    def _end_components(self) -> None:
        pass

    _start_components = _end_components


CONTENTS = st.dictionaries(KEYS, st.sampled_from("xyz"))


@given(CONTENTS, CONTENTS, st.sets(KEYS))
def test_all_is_as_it_was_but_events_node_leases_and_what_the_api_server_renews(
    before: dict[str, str], put: dict[str, str], delete: set[str]
) -> None:
    etcd = FakeEtcd(before)
    etcd.note()
    for _ in range(2):
        etcd.change(put, delete)
        own = etcd.values().get(OWN)
        etcd.rewind()
        kept = {key: value for key, value in before.items() if not key.startswith(NOT_KEPT)}
        assert {**etcd.values(), OWN: own} == {**kept, OWN: own}
        assert etcd.values().get(OWN) == own
        assert etcd.differences() == []


def test_thousands_of_objects_are_deleted_in_few_requests() -> None:
    etcd = FakeEtcd({f"/registry/configmaps/a/{number}": "x" for number in range(300)})
    etcd.note()
    etcd.change({f"/registry/configmaps/b/{number}": "x" for number in range(3_000)}, ())
    etcd.rewind()
    assert etcd.count() == len(etcd.holds) == 300


def test_many_large_objects_are_put_back_in_requests_that_etcd_accepts() -> None:
    pods = {f"/registry/pods/a/{number}": "x" * 20_000 for number in range(150)}
    etcd = FakeEtcd({**pods, "/registry/secrets/a/large": "x" * 1_000_000})
    etcd.note()
    etcd.change({}, list(etcd.holds))
    etcd.rewind()
    assert etcd.differences() == []


def test_a_program_that_goes_on_writing_is_noticed() -> None:
    etcd = FakeEtcd({})
    etcd.note()
    etcd.change({"/registry/pods/default/a": "x"}, ())
    etcd.writes_on = True
    with pytest.raises(ClusterError, match="goes on writing"):
        etcd.rewind()
