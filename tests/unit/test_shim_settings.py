"""The flags of `kwok-operator shim`, and the environment variables of the same names.

- nothing given: the defaults; every flag has a variable, and a flag wins over it
- addresses: TCP, socket files, and what is neither
- certificates go together; without them, an address that others can reach is refused, unless that
  is meant
- trouble of the cloud's API is read from a file, and what is wrong with that is told
- labels of groups: one flag is a set, several are alternatives; what is no list of labels is told
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.errors import SettingsError
from kwok_operator.shim.settings import (
    Address,
    Certificates,
    Selector,
    ShimSettings,
    add_listen_flags,
    add_shim_flags,
    parse_address,
    shim_settings,
)

DEFAULTS = ShimSettings(
    kubeconfig=None,
    context=None,
    listen=Address(host="127.0.0.1", port=8086),
    certificates=None,
    selector=Selector(),
    provider_id_prefix="kwok:",
    metrics_listen=("0.0.0.0", 8087),
    api_trouble=None,
    grpc_reflection=False,
    log_format="text",
    log_level="info",
)

# Flag, setting, two good texts with the values they mean.
GOOD: list[tuple[str, str, tuple[str, Any], tuple[str, Any]]] = [
    ("kubeconfig", "kubeconfig", ("/a/config", "/a/config"), ("b", "b")),
    ("context", "context", ("kind-a", "kind-a"), ("b", "b")),
    (
        "listen",
        "listen",
        ("localhost:9000", Address(host="localhost", port=9000)),
        ("unix:/run/a.sock", Address(path="/run/a.sock")),
    ),
    (
        "node-group-auto-discovery",
        "selector",
        ("kwok:team=a", Selector(({"team": "a"},))),
        ("kwok:b=", Selector(({"b": ""},))),
    ),
    ("provider-id-prefix", "provider_id_prefix", ("kwok://", "kwok://"), ("a:", "a:")),
    ("metrics-listen", "metrics_listen", ("127.0.0.1:9000", ("127.0.0.1", 9000)), ("0", None)),
    ("log-format", "log_format", ("json", "json"), ("text", "text")),
    ("log-level", "log_level", ("debug", "debug"), ("error", "error")),
]
IDS = [flag for flag, *_ in GOOD]
FILES = {"cert": "/c", "key": "/k", "cacert": "/ca"}
MUTUAL_TLS = Certificates(cert="/c", key="/k", cacert="/ca")


def parse(*arguments: str, **environ: str) -> ShimSettings:
    parser = argparse.ArgumentParser()
    add_shim_flags(parser)
    return shim_settings(parser.parse_args(arguments), environ)


def refused(*arguments: str, **environ: str) -> str:
    with pytest.raises(SettingsError) as error:
        parse(*arguments, **environ)
    assert "\n" not in str(error.value)
    return str(error.value)


def variable(flag: str) -> str:
    return f"KWOK_OPERATOR_{flag.upper().replace('-', '_')}"


def test_with_nothing_given_all_is_as_documented() -> None:
    assert parse() == DEFAULTS


def test_every_setting_is_tried_here() -> None:
    tried = {setting for _, setting, *_ in GOOD}
    tried |= {"certificates", "api_trouble", "grpc_reflection"}
    assert tried == {field.name for field in dataclasses.fields(ShimSettings)}


@pytest.mark.parametrize(("flag", "setting", "one", "two"), GOOD, ids=IDS)
class TestEachFlag:
    def test_a_flag_sets_its_setting_and_no_other(
        self, flag: str, setting: str, one: tuple[str, Any], two: tuple[str, Any]
    ) -> None:
        for text, value in (one, two):
            changed = dataclasses.replace(DEFAULTS, **{setting: value})
            assert parse(f"--{flag}={text}") == changed
            assert parse(**{variable(flag): text}) == changed

    def test_a_flag_wins_over_its_variable(
        self, flag: str, setting: str, one: tuple[str, Any], two: tuple[str, Any]
    ) -> None:
        found = parse(f"--{flag}={one[0]}", **{variable(flag): two[0]})
        assert getattr(found, setting) == one[1]

    def test_an_empty_variable_is_none(
        self, flag: str, setting: str, one: tuple[str, Any], two: tuple[str, Any]
    ) -> None:
        assert parse(**{variable(flag): ""}) == DEFAULTS


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "is_local"),
        [
            ("127.0.0.1:8086", True),
            ("127.9.9.9:1", True),
            ("localhost:8086", True),
            ("[::1]:8086", True),
            ("unix:/run/kwok/shim.sock", True),
            ("0.0.0.0:8086", False),
            ("[::]:8086", False),
            ("10.0.0.1:8086", False),
            ("shim.kwok.svc:8086", False),
            ("localhost.example.com:8086", False),
        ],
    )
    def test_they_are_read_and_written_alike(self, text: str, is_local: bool) -> None:
        assert str(parse_address(text)) == text
        assert parse_address(text).is_local is is_local

    def test_no_host_is_every_host(self) -> None:
        assert parse_address(":8086") == Address(host="0.0.0.0", port=8086)

    @pytest.mark.parametrize(
        "text",
        ["0", "8086", "localhost", ":http", "127.0.0.1:0", "127.0.0.1:65536", "http://a:b", "unix"],
    )
    def test_what_is_none(self, text: str) -> None:
        assert refused(f"--listen={text}") == (
            f"--listen: {text!r} is not an address such as 127.0.0.1:8086 or "
            "unix:/run/kwok/shim.sock"
        )
        assert refused(**{variable("listen"): text}).startswith("KWOK_OPERATOR_LISTEN: ")

    @pytest.mark.parametrize("path", ["", "shim.sock", "./shim.sock", "@abstract"])
    def test_a_socket_file_has_a_whole_path(self, path: str) -> None:
        assert "is not a socket file such as" in refused(f"--listen=unix:{path}")

    def test_the_path_of_a_socket_file_is_short(self) -> None:
        longest = f"/{'s' * 99}"
        assert parse(f"--listen=unix:{longest}").listen == Address(path=longest)
        assert "may have 100 bytes" in refused(f"--listen=unix:{longest}s")
        assert "may have 100 bytes" in refused(f"--listen=unix:/{'é' * 50}")

    @given(st.text(max_size=120))
    @settings(deadline=None, max_examples=200)
    def test_any_text_is_an_address_or_told(self, text: str) -> None:
        try:
            found = parse_address(text)
        except ValueError as error:
            assert "such as" in str(error) or "100 bytes" in str(error)
        else:
            assert parse_address(str(found)) == found


class TestCertificates:
    ADDRESS = "--listen=0.0.0.0:8086"

    def flags(self, *names: str) -> list[str]:
        return [f"--{name}={FILES[name]}" for name in names]

    def test_all_three(self) -> None:
        found = parse(self.ADDRESS, *self.flags(*FILES))
        assert found.certificates == MUTUAL_TLS
        environ = {variable(name): file for name, file in FILES.items()}
        assert parse(self.ADDRESS, **environ).certificates == MUTUAL_TLS

    @pytest.mark.parametrize("missing", FILES)
    def test_they_go_together(self, missing: str) -> None:
        """A key without the clients' CA would let everybody in."""
        given_flags = self.flags(*(FILES.keys() - {missing}))
        for address in (self.ADDRESS, "--listen=localhost:1"):
            assert refused(address, *given_flags) == (
                f"--cert, --key and --cacert go together: --{missing} is missing"
            )

    @pytest.mark.parametrize("address", ["0.0.0.0:8086", "[::]:1", "10.0.0.1:1", "shim.kwok:1"])
    def test_without_them_others_cannot_reach_the_shim(self, address: str) -> None:
        assert refused(f"--listen={address}") == (
            f"--listen {address}: others can reach this address, and could scale the groups; give "
            "--cert, --key and --cacert, or --insecure if that is meant"
        )

    def test_unless_that_is_meant(self) -> None:
        for found in (
            parse(self.ADDRESS, "--insecure"),
            parse(self.ADDRESS, KWOK_OPERATOR_INSECURE="true"),
        ):
            assert found.certificates is None
            assert found.listen == Address(host="0.0.0.0", port=8086)
        assert "--insecure" in refused(self.ADDRESS, KWOK_OPERATOR_INSECURE="false")

    @pytest.mark.parametrize("address", ["unix:/run/a.sock", "localhost:1", "[::1]:1"])
    def test_what_stays_on_the_machine_needs_none(self, address: str) -> None:
        assert parse(f"--listen={address}").certificates is None


class TestApiTrouble:
    """What such a file may say is in test_shim_trouble.py."""

    def test_it_is_read_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "trouble.yaml"
        file.write_text("seed: run-1\nrpcs: [{name: Refresh, latency: {fixed: 1s}}]\n")
        for found in (
            parse(f"--api-trouble={file}"),
            parse(**{variable("api-trouble"): str(file)}),
        ):
            assert found.api_trouble is not None
            assert found.api_trouble.seed == "run-1"
            assert dataclasses.replace(found, api_trouble=None) == DEFAULTS

    def test_a_file_that_is_none_is_told(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing.yaml"
        assert refused(f"--api-trouble={missing}") == (
            f"--api-trouble: {str(missing)!r} can't be read: No such file or directory; give "
            "another file"
        )
        odd = tmp_path / "odd.yaml"
        odd.write_text("rpcs: [{name: Refresh, latency: {fixed: 5}}]")
        sentence = refused(**{variable("api-trouble"): str(odd)})
        assert sentence.startswith(
            f"KWOK_OPERATOR_API_TROUBLE: {str(odd)!r} can't be used: rpcs[0]"
        )


def test_reflection_is_asked_for() -> None:
    asked = dataclasses.replace(DEFAULTS, grpc_reflection=True)
    assert parse("--grpc-reflection") == asked
    assert parse(KWOK_OPERATOR_GRPC_REFLECTION="true") == asked
    assert parse(KWOK_OPERATOR_GRPC_REFLECTION="false") == DEFAULTS


class TestDiscovery:
    def discover(self, *texts: str) -> Selector:
        return parse(*(f"--node-group-auto-discovery={text}" for text in texts)).selector

    def test_one_flag_is_a_set_of_labels_and_several_are_alternatives(self) -> None:
        selector = self.discover("kwok:team=a,example.com/stage=test", "clusterapi:team=b")
        assert selector.matches({"team": "a", "example.com/stage": "test", "more": ""})
        assert selector.matches({"team": "b"})
        assert not selector.matches({"team": "a"})
        assert not selector.matches({})

    def test_without_any_all_groups_are_meant(self) -> None:
        assert self.discover().matches({})

    def test_in_the_variable_they_are_apart_by_blanks(self) -> None:
        given_text = " kwok:team=a,stage=test  kwok:team=b "
        found = parse(KWOK_OPERATOR_NODE_GROUP_AUTO_DISCOVERY=given_text).selector
        assert found == self.discover("kwok:team=a,stage=test", "kwok:team=b")

    def test_an_empty_value_is_a_value(self) -> None:
        assert self.discover("kwok:team=").matches({"team": ""})
        assert not self.discover("kwok:team=").matches({})

    @pytest.mark.parametrize(
        "text", ["", "kwok:", "kwok:team", "kwok:=a", "kwok:a=b,", "gce:a=b", "kwok:a=b=c", "a b=c"]
    )
    def test_what_is_no_list_of_labels(self, text: str) -> None:
        assert refused(f"--node-group-auto-discovery={text}") == (
            f"--node-group-auto-discovery: {text!r} is not a list of labels such as "
            "kwok:team=a,stage=test"
        )


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("metrics-listen", "8087"),
        ("provider-id-prefix", " "),
        ("log-format", "yaml"),
        ("log-level", "loud"),
    ],
)
def test_other_values_that_cannot_be_used(flag: str, text: str) -> None:
    assert refused(f"--{flag}={text}").startswith(f"--{flag}: {text!r} is ")
    assert refused(**{variable(flag): text}).startswith(f"{variable(flag)}: {text!r} is ")


def test_help_tells_of_every_flag() -> None:
    parser = argparse.ArgumentParser()
    add_shim_flags(parser)
    text = parser.format_help()
    for flag in [*IDS, *FILES, "insecure", "grpc-reflection"]:
        assert f"--{flag}" in text


def test_cloud_config_needs_the_address_and_certificates_only(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_listen_flags(parser)
    found = vars(parser.parse_args([f"--listen=unix:{tmp_path}/a.sock"]))
    assert found.keys() == {"listen", *FILES}
