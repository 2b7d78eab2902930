"""What others write is attack input: ConfigMaps, kubeconfigs in Secrets, names, label values."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kwok_operator.constants import MAX_GROUP_NAME_LENGTH
from kwok_operator.errors import ConnectionConfigError, KwokOperatorError, one_line
from kwok_operator.formats.documents import NodeDocuments, read_nodes
from kwok_operator.kube.remote import MAX_LENGTH, remote_endpoint
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.cleaning import clean_node
from kwok_operator.nodegroups.naming import group_name, is_group_name
from kwok_operator.nodegroups.template import resolve
from kwok_operator.sources.api.source import TemplateSource
from kwok_operator.sources.providerconfig import read_config

WHERE = "ConfigMap ops/x, key y"
SECRET = "hunter2-hunter2"
MEGABYTE = 1_000_000


def laughs(opening: str, closing: str, times: int) -> str:
    """A few lines, each of which means the one before nine times."""
    lines = [f"a0: &a0 {opening}x: lol{closing}" if opening == "{" else "a0: &a0 [lol]"]
    for i in range(1, times):
        inner = [f"k{j}: *a{i - 1}" if opening == "{" else f"*a{i - 1}" for j in range(9)]
        lines.append(f"a{i}: &a{i} {opening}{', '.join(inner)}{closing}")
    return "\n".join(lines)


def merges(times: int) -> str:
    lines = ["a0: &a0 {" + ", ".join(f"k{j}: {'x' * 50}" for j in range(200)) + "}"]
    lines += [
        f"a{i}: &a{i}\n  <<: *a{i - 1}\n  n{i}: [*a{i - 1}, *a{i - 1}]" for i in range(1, times)
    ]
    return "\n".join(lines)


TEXTS = {
    "a billion laughs": laughs("[", "]", 20),
    "a billion keys": laughs("{", "}", 20),
    "merges of merges": merges(40),
    "an anchor within itself": "a: &a [*a]",
    "a list without end": "[" * MEGABYTE,
    "an object without end": "{a: " * (MEGABYTE // 4),
    "a block without end": "".join(" " * i + f"k{i}:\n" for i in range(1_000)),
    "a huge number": f"a: {'9' * MEGABYTE}",
    "a huge number in hexadecimal": f"a: 0x{'f' * MEGABYTE}",
    "a tag that runs code": f"a: !!python/object/apply:os.system [{SECRET}]",
    "a tag that reads a file": "a: !include /etc/passwd",
    "a NUL": f"token: {SECRET}\0",
    "a bell in quotes": f"token: [{SECRET}, '\a'",
    "half a surrogate": f"token: {SECRET}\ud800",
    "a million quotes": '"' * MEGABYTE,
    "very many aliases": "a: &a x\nb: [" + "*a," * 60_000 + "]",
    "a key twice": f"a: {SECRET}\na: 2",
    "very many documents": "---\n" * 50_000,
    "a megabyte of nothing": " " * MEGABYTE,
    "text": SECRET,
}


def kubeconfig_of_secret(text: str) -> object:
    return remote_endpoint(text, where="Secret prod")


def provider_config(text: str) -> object:
    return read_config(text, where=WHERE)


def templates(text: str) -> object:
    return read_nodes(text, where=WHERE)


@pytest.mark.timeout(120)  # what is not stopped takes hours
@pytest.mark.parametrize("read", [kubeconfig_of_secret, provider_config, templates])
@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_is_refused_soon(read: Callable[[str], object], name: str) -> None:
    with pytest.raises(KwokOperatorError) as caught:
        read(TEXTS[name])
    sentence = str(caught.value)
    assert sentence.isprintable() and len(sentence) < 2_500
    if read is kubeconfig_of_secret:
        assert SECRET not in sentence


def test_a_kubeconfig_may_be_as_long_as_a_hundred_contexts_and_no_longer() -> None:
    certificate = base64.b64encode(b"x" * 1_200).decode()
    clusters = [
        {"name": f"c{i}", "cluster": {"server": "https://k8s", "certificate-authority-data": ""}}
        for i in range(100)
    ]
    users = [{"name": f"u{i}", "user": {"token": certificate}} for i in range(100)]
    contexts = [{"name": "a", "context": {"cluster": "c1", "user": "u1"}}]
    whole = {"clusters": clusters, "users": users, "contexts": contexts, "current-context": "a"}
    text = yaml.safe_dump(whole)
    assert remote_endpoint(text, where="Secret prod").token == certificate
    with pytest.raises(ConnectionConfigError, match="262144 are the most; leave only the context"):
        remote_endpoint(text + "#" * MAX_LENGTH, where="Secret prod")


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "sh"}},
        {"exec": "sh"},
        {"exec": ["sh"]},
        {"auth-provider": {"name": "gcp", "config": {"cmd-path": "sh"}}},
        {"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"},
        {"client-certificate": "/etc/passwd", "client-key": "/etc/passwd"},
        {"as": "system:admin"},
        {"as-groups": ["system:masters"]},
    ],
)
def test_a_kubeconfig_of_a_secret_holds_data_only(user: dict[str, Any]) -> None:
    """Hidden in an anchor, or merged in, it is the same."""
    cluster = {"server": "https://k8s"}
    plain = kubeconfig(cluster, {"token": SECRET, **user})
    merged = kubeconfig(cluster, {"token": SECRET}).replace(
        f"token: {SECRET}", f"<<: {yaml.safe_dump(user, default_flow_style=True).strip()}"
    )
    for text in (plain, merged):
        with pytest.raises(ConnectionConfigError) as caught:
            remote_endpoint(text, where="Secret prod")
        assert next(iter(user)) in str(caught.value)
        assert SECRET not in str(caught.value)


def kubeconfig(cluster: dict[str, Any], user: dict[str, Any]) -> str:
    return yaml.safe_dump(
        {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
    )


@given(st.text(max_size=300).map(lambda text: text * 10) | st.text())
def test_whatever_the_context_is_called_the_sentence_is_short(name: str) -> None:
    text = yaml.safe_dump({"current-context": name, "contexts": []})
    with pytest.raises(ConnectionConfigError) as caught:
        remote_endpoint(text, where="Secret prod")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 700


PATHS = [
    "../../../kube-system/secrets/admin",
    "..",
    "a/../b",
    "a%2f..%2fb",
    "a?watch=true",
    "a#b",
    "a b",
    "a\n",
    "a\0",
    "A",
    "",
    "a" * 254,
    "a" * MEGABYTE,
]


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    "source",
    [
        lambda name: {"nodes": {"name": "n", "cluster": {"secretName": name}}},
        lambda name: {"nodes": {"name": name}},
        lambda name: {"configMap": {"name": name}},
    ],
)
def test_a_path_is_no_name(source: Callable[[str], dict[str, Any]], name: str) -> None:
    """The API server refuses it first, by the same patterns; and so does who reads it."""
    with pytest.raises(ValidationError):
        TemplateSource.model_validate(source(name))


@pytest.mark.parametrize("value", [*PATHS, "\x1b[2J", "\u202e", "🤖" * 1_000])
def test_a_value_of_a_label_makes_a_name_that_is_one(value: str) -> None:
    name = group_name(value)
    assert is_group_name(name) and len(name) <= MAX_GROUP_NAME_LENGTH


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("value", ["x" * MEGABYTE, "\x1b[2J\n", 10**4_000, None, ["x"]])
def test_metadata_of_a_template_make_a_node_or_a_short_sentence(part: str, value: object) -> None:
    node = {"metadata": {"name": "n", part: {"example.com/a": value, "x" * MEGABYTE: "y"}}}
    try:
        cleaned = clean_node(node, field="Node n")
        resolve(Template.model_validate({"node": cleaned}), guard=GuardTaint())
    except (KwokOperatorError, ValidationError) as error:
        assert len(one_line(error)) <= 2_000


def test_a_thousand_nodes_of_one_name_are_one_sentence() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real"}}
    text = yaml.safe_dump_all([node] * 2)
    with pytest.raises(KwokOperatorError) as caught:
        read_nodes(text, where=WHERE)
    assert len(str(caught.value)) < 500
    assert read_nodes(text.replace("name: real", "name: m", 1), where=WHERE) != NodeDocuments(())


@given(st.text())
def test_a_sentence_has_nothing_that_a_terminal_obeys(text: str) -> None:
    line = one_line(f"{text}\x1b[31m\x07\x9b\u202e\ud800{text}")
    assert line.isprintable() or line == ""
    line.encode()
