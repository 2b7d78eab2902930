"""The flags of `kwok-operator run`, and the environment variables of the same names."""

import argparse
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.errors import SettingsError
from kwok_operator.settings import ENV_PREFIX, RunSettings, add_run_flags, run_settings

DEFAULTS = RunSettings(
    kubeconfig=None,
    context=None,
    max_total_nodes=10_000,
    provider_id_prefix="kwok:",
    cloud_seed="",
    csi_nodes=None,
    node_concurrency=64,
    max_qps=0.0,
    listen=("0.0.0.0", 8080),
    resync_interval=300.0,
    namespace=None,
    provider_config="kwok-provider-config",
    provider_config_namespace=None,
    leader_elect=False,
    leader_elect_lease_duration=10,
    leader_elect_renew_deadline=7.0,
    leader_elect_retry_period=2.0,
    leader_elect_resource_name="kwok-operator",
    leader_elect_resource_namespace=None,
    log_format="text",
    log_level="info",
)

# Flag, two good texts with the values they mean.
GOOD: dict[str, tuple[tuple[str, Any], tuple[str, Any]]] = {
    "kubeconfig": (("/a/config", "/a/config"), ("b", "b")),
    "context": (("kind-a", "kind-a"), ("b", "b")),
    "max-total-nodes": (("50000", 50_000), ("0", 0)),
    "provider-id-prefix": (("kwok://", "kwok://"), ("aws:///a/", "aws:///a/")),
    "cloud-seed": (("run-1", "run-1"), ("2", "2")),
    "csi-nodes": (("true", True), ("false", False)),
    "node-concurrency": (("1", 1), ("256", 256)),
    "max-qps": (("50", 50.0), ("0.5", 0.5)),
    "listen": (("127.0.0.1:9000", ("127.0.0.1", 9000)), ("0", None)),
    "resync-interval": (("60", 60.0), ("1.5", 1.5)),
    "provider-config-namespace": (("kube-system", "kube-system"), ("b", "b")),
    "leader-elect": (("true", True), ("True", True)),
    "leader-elect-lease-duration": (("15", 15), ("3600s", 3600)),
    "leader-elect-renew-deadline": (("8.5", 8.5), ("3s", 3.0)),
    "leader-elect-retry-period": (("1", 1.0), ("0.5s", 0.5)),
    "leader-elect-resource-name": (("lead", "lead"), ("a.b", "a.b")),
    "leader-elect-resource-namespace": (("kube-system", "kube-system"), ("b", "b")),
    "log-format": (("json", "json"), ("text", "text")),
    "log-level": (("debug", "debug"), ("error", "error")),
}
BAD: dict[str, list[str]] = {
    "max-total-nodes": ["many", "-1", "1e4", "1.5", " 5 "],
    "provider-id-prefix": [" "],
    "node-concurrency": ["0", "-1", "257", "1" * 5_000, "many"],
    "max-qps": ["-1", "0.001", "1e6", "nan", "inf", "50/s"],
    "listen": ["8080", "localhost", ":0", ":65536", ":http", "127.0.0.1:", ":-1"],
    "resync-interval": ["5m", "0", "0.5", "-300", "nan", "inf", "86401"],
    "csi-nodes": ["perhaps"],
    "leader-elect": ["perhaps"],
    "leader-elect-lease-duration": ["7", "0", "10.5", "10m", "3601", "1" * 5_000],
    "leader-elect-renew-deadline": ["10", "2.4", "nan"],
    "leader-elect-retry-period": ["6", "0", "-2", "inf"],
    "leader-elect-resource-name": ["Lead", "../lead"],
    "leader-elect-resource-namespace": ["a.b"],
    "log-format": ["yaml"],
    "log-level": ["loud", "in\nfo"],
}


def parse(*arguments: str, **environ: str) -> RunSettings:
    parser = argparse.ArgumentParser()
    add_run_flags(parser)
    return run_settings(parser.parse_args(arguments), environ)


def field(flag: str) -> str:
    return flag.replace("-", "_")


def variable(flag: str) -> str:
    return f"{ENV_PREFIX}{field(flag).upper()}"


def test_with_nothing_given_all_is_as_documented() -> None:
    assert parse() == DEFAULTS


def test_two_settings_are_variables_only_and_belong_to_others() -> None:
    given = {"POD_NAMESPACE": "ops", "KWOK_PROVIDER_CONFIGMAP": "mine"}
    settings = run_settings(argparse.Namespace(**dict.fromkeys(map(field, GOOD))), given)
    assert (settings.namespace, settings.provider_config) == ("ops", "mine")


@pytest.mark.parametrize("name", ["POD_NAMESPACE", "KWOK_PROVIDER_CONFIGMAP"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}: '../secrets' is not the name of a"):
        run_settings(argparse.Namespace(**dict.fromkeys(map(field, GOOD))), {name: "../secrets"})


def test_every_setting_is_tried_here() -> None:
    settings = {f.name for f in dataclasses.fields(RunSettings)}
    assert {field(flag) for flag in GOOD} | {"namespace", "provider_config"} == settings


@pytest.mark.parametrize(("flag", "values"), GOOD.items())
def test_a_flag_and_its_variable_set_one_setting(flag: str, values: Any) -> None:
    for text, value in values:
        changed = dataclasses.replace(DEFAULTS, **{field(flag): value})
        assert parse(f"--{flag}={text}") == parse(**{variable(flag): text}) == changed
    (text, value), (other, _) = values
    assert getattr(parse(f"--{flag}={text}", **{variable(flag): other}), field(flag)) == value
    # As in a Deployment whose value was left out.
    assert parse(**{variable(flag): ""}) == DEFAULTS


def test_other_variables_have_no_effect() -> None:
    assert parse(KUBECONFIG="/a", LISTEN=":1", KWOK_OPERATOR_OTHER="x") == DEFAULTS


@pytest.mark.parametrize(
    ("flag", "text"), [(flag, text) for flag, texts in BAD.items() for text in texts]
)
def test_a_bad_value_is_one_line_that_names_flag_or_variable(flag: str, text: str) -> None:
    good = {variable(flag): GOOD[flag][0][0]}
    with pytest.raises(SettingsError) as of_flag:
        parse(f"--{flag}={text}", **good)
    with pytest.raises(SettingsError) as of_variable:
        parse(**{variable(flag): text})
    for name, refused in ((f"--{flag}", of_flag), (variable(flag), of_variable)):
        assert str(refused.value).startswith(f"{name}: {text!r} is ")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("flag", "remedy"),
    [
        ("max-total-nodes", "such as 10000"),
        ("provider-id-prefix", 'such as "kwok:"'),
        ("node-concurrency", "from 1 to 256, such as 64"),
        ("max-qps", "such as 50, nor 0 for as many as the API server takes"),
        ("listen", "such as :8080 or 127.0.0.1:8080, nor 0 for none"),
        ("resync-interval", "from 1 to 86400"),
        ("leader-elect", "none of true, false"),
        ("leader-elect-lease-duration", "from 1 to 3600, such as 10"),
        ("leader-elect-renew-deadline", "from 0.1 to 3600, such as 2"),
        ("leader-elect-retry-period", "from 0.1 to 3600, such as 2"),
        ("leader-elect-resource-name", "such as kwok-operator"),
        ("log-format", "none of text, json"),
        ("log-level", "none of debug, info, warning, error"),
    ],
)
def test_an_error_says_what_would_be_right(flag: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse(f"--{flag}=")
    assert remedy in str(refused.value)


def test_a_flag_alone_turns_the_election_on() -> None:
    assert parse("--leader-elect", "--log-level=info").leader_elect
    assert not parse("--leader-elect=false", KWOK_OPERATOR_LEADER_ELECT="true").leader_elect


@pytest.mark.parametrize(
    ("flag", "text", "problem"),
    [
        ("lease-duration", "7", "not longer than --leader-elect-renew-deadline, 7 s"),
        ("renew-deadline", "12s", "not shorter than --leader-elect-lease-duration, 10 s"),
        ("renew-deadline", "2.4", "not enough for --leader-elect-retry-period, 2 s"),
        ("retry-period", "6", "not short enough for --leader-elect-renew-deadline, 7 s"),
    ],
)
def test_times_of_the_election_that_do_not_go_together(flag: str, text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=f"^--leader-elect-{flag}: '{text}' is {problem}: a "):
        parse(f"--leader-elect-{flag}={text}")


def test_times_of_the_election_can_be_changed_together() -> None:
    slow = parse(
        "--leader-elect-lease-duration=60",
        "--leader-elect-renew-deadline=40",
        KWOK_OPERATOR_LEADER_ELECT_RETRY_PERIOD="10s",
    )
    assert slow.leader_elect_lease_duration == 60
    assert (slow.leader_elect_renew_deadline, slow.leader_elect_retry_period) == (40, 10)


def test_an_empty_name_is_the_default() -> None:
    assert parse("--kubeconfig=", "--context=") == DEFAULTS


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ("0.0.0.0", 8080)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::]:8080", ("::", 8080)),
        ("[::1]:8080", ("::1", 8080)),
        ("0", None),
    ],
)
def test_addresses(text: str, address: tuple[str, int] | None) -> None:
    assert parse(f"--listen={text}").listen == address


def test_choices_may_be_in_capitals() -> None:
    assert [parse(f"--log-level={text}").log_level for text in ("INFO", "Error")] == [
        "info",
        "error",
    ]


@given(flag=st.sampled_from(list(GOOD)), text=st.text(max_size=30))
@settings(deadline=None, max_examples=200)
def test_any_text_is_a_value_or_an_error(flag: str, text: str) -> None:
    try:
        parse(f"--{flag}={text}")
    except SettingsError as error:
        assert str(error).startswith(f"--{flag}: ")
        assert "\n" not in str(error)


def test_help_has_every_flag_and_default() -> None:
    parser = argparse.ArgumentParser()
    add_run_flags(parser)
    text = " ".join(parser.format_help().split())
    assert [flag for flag in GOOD if f"--{flag}" not in text] == []
    for default in ("10000", '"kwok:"', "64", "0", ":8080", "300", "false", "10", "7", "2"):
        assert f"(default {default}" in text
