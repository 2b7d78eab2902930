"""The flags of `kwok-operator shim` and `cloud-config`, and the variables of the same names."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cli.main import main as cli
from kwok_operator.clusterapi.discovery import Discovery
from kwok_operator.constants import ALIKE_LABEL, CAPI_CLUSTER_ANNOTATION, CAPI_NAMESPACE_ANNOTATION
from kwok_operator.errors import SettingsError
from kwok_operator.shim.settings import (
    Address,
    Certificates,
    Selector,
    ShimSettings,
    add_shim_flags,
    cloud_config,
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
    calls_log=None,
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
        ("kwok:team=a", Selector((Discovery(labels={"team": "a"}),))),
        ("clusterapi:namespace=b", Selector((Discovery(namespace="b"),))),
    ),
    ("provider-id-prefix", "provider_id_prefix", ("kwok://", "kwok://"), ("a:", "a:")),
    ("calls-log", "calls_log", ("/tmp/calls", "/tmp/calls"), ("calls", "calls")),
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
    tried |= {"certificates", "api_trouble"}
    assert tried == {field.name for field in dataclasses.fields(ShimSettings)}


@pytest.mark.parametrize(("flag", "setting", "one", "two"), GOOD, ids=IDS)
def test_a_flag_sets_its_setting_and_no_other_and_wins_over_its_variable(
    flag: str, setting: str, one: tuple[str, Any], two: tuple[str, Any]
) -> None:
    for text, value in (one, two):
        changed = dataclasses.replace(DEFAULTS, **{setting: value})
        assert parse(f"--{flag}={text}") == changed
        assert parse(**{variable(flag): text}) == changed
    found = parse(f"--{flag}={one[0]}", **{variable(flag): two[0]})
    assert getattr(found, setting) == one[1]
    assert parse(**{variable(flag): ""}) == DEFAULTS, "an empty variable is none"


class TestAddresses:
    def test_they_are_read_and_written_alike(self) -> None:
        here = "127.0.0.1:8086 127.9.9.9:1 localhost:8086 [::1]:8086 unix:/run/kwok/shim.sock"
        others = "0.0.0.0:8086 [::]:8086 10.0.0.1:8086 shim.kwok.svc:1 localhost.example.com:1"
        for texts, is_local in ((here, True), (others, False)):
            for text in texts.split():
                assert str(parse_address(text)) == text
                assert parse_address(text).is_local is is_local, text
                config = yaml.safe_load(cloud_config(parse_address(text), None))
                # cluster-autoscaler ends where there is more than one colon outside of brackets.
                host, _, port = config["address"].rpartition(":")
                assert port
                assert ":" not in host or (host[0], host[-1]) == ("[", "]")

    def test_no_host_is_every_host(self) -> None:
        assert parse_address(":8086") == Address(host="0.0.0.0", port=8086)

    def test_texts_that_are_no_address(self) -> None:
        for text in "0 8086 localhost :http 127.0.0.1:0 127.0.0.1:65536 http://a:b unix".split():
            assert refused(f"--listen={text}").startswith(f"--listen: {text!r} is not an address")
            assert refused(**{variable("listen"): text}).startswith("KWOK_OPERATOR_LISTEN: ")
        for path in ("", "shim.sock", "./shim.sock", "@abstract"):
            assert "is not a socket file such as" in refused(f"--listen=unix:{path}")
        assert "a colon" in refused("--listen=unix:/run/kwok:8086.sock")

    def test_the_path_of_a_socket_file_is_short(self) -> None:
        longest = f"/{'s' * 99}"
        assert parse(f"--listen=unix:{longest}").listen == Address(path=longest)
        assert "may have 100 bytes" in refused(f"--listen=unix:{longest}s")
        assert "may have 100 bytes" in refused(f"--listen=unix:/{'é' * 50}")

    @given(st.text(max_size=120))
    @settings(deadline=None, max_examples=200)
    def test_any_text_is_an_address_or_refused(self, text: str) -> None:
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

    def test_they_go_together(self) -> None:
        """A key without the clients' CA would let everybody in."""
        for missing in FILES:
            given_flags = self.flags(*(FILES.keys() - {missing}))
            for address in (self.ADDRESS, "--listen=localhost:1"):
                assert refused(address, *given_flags).endswith(f"together: --{missing} is missing")

    def test_without_them_others_cannot_reach_the_shim(self) -> None:
        for address in ("0.0.0.0:8086", "[::]:1", "10.0.0.1:1", "shim.kwok:1"):
            sentence = refused(f"--listen={address}")
            assert sentence.startswith(f"--listen {address}: others can reach this address")
        for address in ("unix:/run/a.sock", "localhost:1", "[::1]:1"):
            assert parse(f"--listen={address}").certificates is None

    def test_unless_that_is_meant(self) -> None:
        for found in (
            parse(self.ADDRESS, "--insecure"),
            parse(self.ADDRESS, KWOK_OPERATOR_INSECURE="true"),
        ):
            assert found.certificates is None
            assert found.listen == Address(host="0.0.0.0", port=8086)
        assert "--insecure" in refused(self.ADDRESS, KWOK_OPERATOR_INSECURE="false")


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

    def test_an_unusable_file_is_refused(self, tmp_path: Path) -> None:
        missing, odd = tmp_path / "missing.yaml", tmp_path / "odd.yaml"
        assert refused(f"--api-trouble={missing}").startswith(
            f"--api-trouble: {str(missing)!r} can't be read: No such file or directory"
        )
        odd.write_text("rpcs: [{name: Refresh, latency: {fixed: 5}}]")
        assert refused(**{variable("api-trouble"): str(odd)}).startswith(
            f"KWOK_OPERATOR_API_TROUBLE: {str(odd)!r} can't be used: rpcs[0]"
        )


class TestDiscovery:
    def discover(self, *texts: str) -> Selector:
        return parse(*(f"--node-group-auto-discovery={text}" for text in texts)).selector

    def test_one_flag_is_a_set_of_labels_and_several_are_alternatives(self) -> None:
        selector = self.discover("kwok:team=a,example.com/stage=test", "clusterapi:team=b")
        assert selector.matches({"team": "a", "example.com/stage": "test", "more": ""}, {})
        assert selector.matches({"team": "b"}, {})
        assert not selector.matches({"team": "a"}, {})
        assert not selector.matches({}, {})

    def test_without_any_all_groups_are_meant(self) -> None:
        for selector in (self.discover(), self.discover("clusterapi:")):
            assert selector.matches({}, {})
            assert selector.matches({}, derived("a", "b"))

    def test_in_the_variable_they_are_apart_by_blanks(self) -> None:
        given_text = " kwok:team=a,stage=test  kwok:team=b "
        found = parse(KWOK_OPERATOR_NODE_GROUP_AUTO_DISCOVERY=given_text).selector
        assert found == self.discover("kwok:team=a,stage=test", "kwok:team=b")

    def test_an_empty_value_is_a_value(self) -> None:
        assert self.discover("kwok:team=").matches({"team": ""}, {})
        assert not self.discover("kwok:team=").matches({}, {})

    def test_texts_that_are_no_list_of_labels(self) -> None:
        for text in ("", "kwok:", "kwok:team", "kwok:=a", "kwok:a=b,", "gce:a=b", "kwok:a=b=c"):
            sentence = refused(f"--node-group-auto-discovery={text}")
            assert sentence.startswith(f"--node-group-auto-discovery: {text!r} is not a list")

    def test_flags_that_the_provider_clusterapi_refuses(self) -> None:
        for text in ("clusterapi:a=b:c", "clusterapi:team", "clusterapi:team=a=b"):
            sentence = refused(f"--node-group-auto-discovery={text}")
            assert sentence.startswith(f"--node-group-auto-discovery: {text!r} ")

    def test_namespace_and_cluster_are_those_of_the_object_behind_the_group(self) -> None:
        selector = self.discover("clusterapi:namespace=prod,clusterName=east,team=a")
        assert selector.matches({"team": "a"}, derived("prod", "east"))
        for labels, annotations in (
            ({"team": "b"}, derived("prod", "east")),
            ({"team": "a"}, derived("prod", "west")),
            ({"team": "a"}, derived("test", "east")),
            ({"team": "a", "namespace": "prod", "clusterName": "east"}, {}),
        ):
            assert not selector.matches(labels, annotations)
        assert self.discover("kwok:namespace=prod").matches({"namespace": "prod"}, {})

    def test_no_other_namespace_is_looked_at_than_the_first_one(self) -> None:
        selector = self.discover(
            "kwok:team=c", "clusterapi:team=a", "clusterapi:namespace=b", "clusterapi:namespace=c"
        )
        assert selector.matches({}, derived("b", ""))
        assert selector.matches({"team": "c"}, {})
        assert not selector.matches({}, derived("c", ""))
        assert not selector.matches({"team": "a"}, derived("c", ""))


def derived(namespace: str, cluster: str) -> dict[str, str]:
    return {CAPI_NAMESPACE_ANNOTATION: namespace, CAPI_CLUSTER_ANNOTATION: cluster}


def test_other_values_that_cannot_be_used() -> None:
    for flag, text in (
        ("metrics-listen", "8087"),
        ("provider-id-prefix", " "),
        ("log-format", "yaml"),
        ("log-level", "loud"),
    ):
        assert refused(f"--{flag}={text}").startswith(f"--{flag}: {text!r} is ")
        assert refused(**{variable(flag): text}).startswith(f"{variable(flag)}: {text!r} is ")


def test_help_lists_every_flag() -> None:
    parser = argparse.ArgumentParser()
    add_shim_flags(parser)
    text = parser.format_help()
    for flag in [*IDS, *FILES, "insecure"]:
        assert f"--{flag}" in text


class TestCloudConfig:
    """The file that leads cluster-autoscaler to the shim."""

    def printed(self, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[Any, str]:
        assert cli(["cloud-config", *flags]) == 0
        text = capsys.readouterr().out
        return yaml.safe_load(text), text

    def test_it_has_the_address_and_the_flags_that_go_with_it(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config, text = self.printed(capsys)
        assert config == {"address": "127.0.0.1:8086", "grpc_timeout": "5s"}
        comments = " ".join(line for line in text.splitlines() if line.startswith("#"))
        assert "--cloud-provider=externalgrpc" in comments
        assert "--cloud-config=THIS-FILE" in comments
        assert f"--balancing-label={ALIKE_LABEL}" in comments
        monkeypatch.setenv("KWOK_OPERATOR_LISTEN", "unix:/run/a.sock")
        assert self.printed(capsys)[0]["address"] == "unix:/run/a.sock"
        assert self.printed(capsys, "--listen=[::1]:1")[0]["address"] == "[::1]:1"

    def test_mutual_tls(self, capsys: pytest.CaptureFixture[str]) -> None:
        files = {"cert": "/tls/tls.crt", "key": "/tls/tls.key", "cacert": "/tls/ca: 1.crt"}
        flags = [f"--{name}={file}" for name, file in files.items()]
        config, _ = self.printed(capsys, "--listen=shim.kwok:8086", *flags)
        assert config == {"address": "shim.kwok:8086", "grpc_timeout": "5s", **files}

    def test_wrong_flags_are_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        for flag in ("--listen=8086", "--cert=/tls/tls.crt"):
            assert cli(["cloud-config", flag]) == 2
            said = capsys.readouterr()
            assert said.out == ""
            assert said.err.startswith("kwok-operator: --")
            assert said.err.count("\n") == 1
