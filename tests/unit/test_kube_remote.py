"""Another cluster's kubeconfig, out of a Secret."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.kube.connection import ApiConnection, Endpoint
from kwok_operator.kube.remote import remote_endpoint
from tests.fakes.certificates import Certificates

SECRET = "Secret prod"


def kubeconfig(
    *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **fields: Any
) -> str:
    """One context with a token, unless said otherwise; None leaves a part out."""
    config = {
        "current-context": "admin",
        "contexts": [
            {"name": "admin", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://k8s:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
        **fields,
    }
    return yaml.safe_dump({key: value for key, value in config.items() if value is not None})


def endpoint(text: str) -> Endpoint:
    return remote_endpoint(text, where=SECRET)


def refusal(text: str) -> str:
    with pytest.raises(ConnectionConfigError) as caught:
        endpoint(text)
    sentence = str(caught.value)
    assert sentence.startswith(SECRET)
    assert "\n" not in sentence
    return sentence


class TestAccepted:
    def test_a_token(self) -> None:
        found = endpoint(kubeconfig(user={"token": "t\n"}))
        assert found.server == "https://k8s:6443"
        assert found.description == "context admin at https://k8s:6443"
        assert found.namespace == "ns"
        assert found.headers() == {"Authorization": "Bearer t"}

    def test_user_and_password(self) -> None:
        found = endpoint(kubeconfig(user={"username": "me", "password": "p:w"}))
        secret = base64.b64encode(b"me:p:w").decode()
        assert found.headers() == {"Authorization": f"Basic {secret}"}

    def test_a_client_certificate(self, certificates: Certificates) -> None:
        found = endpoint(
            kubeconfig(
                cluster={"certificate-authority-data": certificates.data("ca.crt")},
                user={
                    "client-certificate-data": certificates.data("client.crt"),
                    "client-key-data": certificates.data("client.key"),
                },
            )
        )
        assert found.ca_data == certificates.text("ca.crt")
        assert found.certificate_data == certificates.text("client.crt")
        assert found.private_key_data == certificates.text("client.key")
        assert found.headers() == {}
        assert (found.ca_path, found.certificate_path, found.private_key_path) == (None,) * 3
        assert ApiConnection(found).ssl is not None

    @pytest.mark.parametrize(
        "server", ["https://[::1]:6443", "https://10.0.0.1", "https://K8s/a/b"]
    )
    def test_any_address(self, server: str) -> None:
        assert endpoint(kubeconfig(cluster={"server": server})).server == server

    def test_how_to_get_there(self) -> None:
        cluster = {
            "insecure-skip-tls-verify": True,
            "tls-server-name": "k8s.test",
            "proxy-url": "http://proxy:3128",
        }
        found = endpoint(kubeconfig(cluster=cluster))
        assert (found.insecure, found.tls_server_name, found.proxy) == (
            True,
            "k8s.test",
            "http://proxy:3128",
        )
        assert endpoint(kubeconfig()).insecure is False

    def test_the_environments_proxy_is_ours_and_not_taken(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
        assert endpoint(kubeconfig()).proxy is None

    def test_what_is_empty_is_not_there(self) -> None:
        user: dict[str, Any] = {"token": "t", "exec": None, "tokenFile": "", "auth-provider": {}}
        assert endpoint(kubeconfig(user=user)).token == "t"

    def test_only_the_current_context_counts(self) -> None:
        contexts = [
            {"name": "admin", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "c", "user": "runs-things"}},
        ]
        users = [
            {"name": "u", "user": {"token": "t"}},
            {"name": "runs-things", "user": {"exec": {"command": "evil"}}},
        ]
        assert endpoint(kubeconfig(contexts=contexts, users=users)).token == "t"


class TestRefused:
    def test_a_program_and_it_is_not_run(self, tmp_path: Path) -> None:
        proof = tmp_path / "it-was-run"
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "touch",
            "args": [str(proof)],
            "interactiveMode": "Never",
        }
        sentence = refusal(kubeconfig(user={"exec": plugin}))
        assert sentence == (
            "Secret prod: context admin: exec runs a program; put a token, or "
            "client-certificate-data and client-key-data instead"
        )
        assert not proof.exists()

    @pytest.mark.parametrize(
        ("key", "value", "remedy"),
        [
            ("exec", {"command": "aws"}, "put a token"),
            ("auth-provider", {"name": "oidc"}, "put a token"),
            ("tokenFile", "{file}", "put token instead"),
            ("client-certificate", "{file}", "put client-certificate-data instead"),
            ("client-key", "{file}", "put client-key-data instead"),
            ("as", "admin", "put the credentials of the account itself"),
            ("as-uid", "0", "put the credentials of the account itself"),
            ("as-groups", ["system:masters"], "put the credentials of the account itself"),
            ("as-user-extra", {"a": ["b"]}, "put the credentials of the account itself"),
        ],
    )
    def test_beside_a_token_too(self, tmp_path: Path, key: str, value: Any, remedy: str) -> None:
        file = tmp_path / "secret"
        file.write_text("not for everybody")
        value = str(file) if value == "{file}" else value
        sentence = refusal(kubeconfig(user={"token": "t", key: value}))
        assert f" {key} " in sentence and remedy in sentence
        assert "not for everybody" not in sentence

    def test_the_file_of_an_authority(self, certificates: Certificates) -> None:
        cluster = {"certificate-authority": certificates.path("ca.crt")}
        sentence = refusal(kubeconfig(cluster=cluster))
        assert "put certificate-authority-data instead" in sentence

    @pytest.mark.parametrize(
        ("cluster", "words"),
        [
            ({"server": "http://k8s"}, "server http://k8s must be a URL that begins with https://"),
            ({"server": "k8s:6443"}, "must be a URL that begins with https://"),
            ({"server": "unix:///var/run/x"}, "must be a URL that begins with https://"),
            ({"server": "https://k8s\nx"}, "must be a URL"),
            ({"server": None}, "the cluster of context admin has no server"),
            ({"proxy-url": "socks5://p"}, "proxy-url socks5://p is not supported: use an http://"),
            ({"proxy-url": "http://["}, "context admin: "),
            ({"insecure-skip-tls-verify": "false"}, "insecure-skip-tls-verify must be true or"),
            ({"server": "https://"}, "must be a URL"),
            ({"server": "https:///path"}, "server: None is not the name or address of a host"),
            ({"server": "https://k8s..test"}, "server: k8s..test is not the name or address"),
            ({"server": "https://["}, "context admin: "),
            ({"server": "https://me:secret@k8s"}, "user or password in the server's URL"),
            ({"tls-server-name": 5}, "tls-server-name: 5 is not the name or address of a host"),
            ({"tls-server-name": "."}, "tls-server-name: . is not the name or address of a host"),
            ({"tls-server-name": "a" * 64 + ".test"}, "is not the name or address of a host"),
            ({"proxy-url": "http://a..b"}, "proxy-url: a..b is not the name or address of a host"),
            ({"certificate-authority-data": "/"}, "certificate-authority-data is not PEM text"),
        ],
        ids=str,
    )
    def test_a_way_that_leads_nowhere(self, cluster: dict[str, Any], words: str) -> None:
        assert words in refusal(kubeconfig(cluster=cluster))

    @pytest.mark.parametrize(
        ("user", "words"),
        [
            ({}, "its user has no credentials; put a token, or client-certificate-data and"),
            ({"password": "p"}, "its user has no credentials"),
            (
                {"client-key-data": "aw=="},
                "client-certificate-data and client-key-data go together",
            ),
            ({"client-certificate-data": "YQ=="}, "go together"),
            ({"token": "a b"}, "token must be one word"),
            ({"token": "a\nX-Other: b"}, "token must be one word"),
        ],
        ids=str,
    )
    def test_no_credentials(self, user: dict[str, Any], words: str) -> None:
        sentence = refusal(kubeconfig(user=user))
        assert "context admin" in sentence and words in sentence

    def test_a_key_that_asks_for_a_password(self) -> None:
        # It would ask at the terminal, and everything would wait.
        pem = "-----BEGIN ENCRYPTED PRIVATE KEY-----"
        user = {"client-certificate-data": "YQ==", "client-key-data": _encoded(pem)}
        assert "client-key-data needs a password; put a key without" in refusal(
            kubeconfig(user=user)
        )

    def test_a_context_that_leads_nowhere(self) -> None:
        """All ways are in test_kube_config.py."""
        sentence = refusal(kubeconfig(**{"current-context": None}))
        assert "no current-context is set; set it to one of: admin" in sentence

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "no current-context is set; set it to one of: none"),
            ("just text", "is not a kubeconfig: it has no fields"),
            ("users:\n\t- token: hidden", "Secret prod, line 2, column 1, is not plain YAML"),
            ("token: hidden\nusers: [", "is not plain YAML; put a kubeconfig there"),
            ("token: !!int hidden", "is not plain YAML"),
            ("token: 2026-13-45", "no current-context is set"),
            ("token: !!python/object/apply:os.system [hidden]", "is not plain YAML"),
            ("[" * 5_000, "is not plain YAML"),
        ],
        ids=lambda value: value[:20],
    )
    def test_no_kubeconfig_at_all(self, text: str, words: str) -> None:
        sentence = refusal(text)
        assert words in sentence
        assert "hidden" not in sentence, "credentials may stand around a mistake"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


odd = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [
            "https://k8s",
            "https://[",
            "http://[",
            "http://a..b",
            "https://a..b",
            "a..b",
            "aw==",
            "=",
            "u",
        ]
    )
    | st.text(max_size=6)
    | st.lists(st.integers(), max_size=1)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=1)
)
clusters = st.fixed_dictionaries(
    {"server": st.just("https://k8s") | odd},
    optional={
        "certificate-authority-data": odd,
        "insecure-skip-tls-verify": odd,
        "tls-server-name": odd,
        "proxy-url": odd,
    },
)
users = st.fixed_dictionaries(
    {},
    optional={
        "token": odd,
        "username": odd,
        "password": odd,
        "client-certificate-data": odd,
        "client-key-data": odd,
        "exec": odd,
    },
)


@given(clusters, users)
def test_whatever_is_written_there(cluster: dict[str, Any], user: dict[str, Any]) -> None:
    try:
        connection = ApiConnection(endpoint(kubeconfig(cluster=cluster, user=user)))
    except ConnectionConfigError as error:
        assert str(error)
        return
    found = connection.endpoint
    assert found.server.startswith("https://") and connection.ssl is not None
    assert isinstance(found.insecure, bool)
    assert found.headers() or found.certificate_data
    assert all(value.isprintable() for value in found.headers().values())


@given(st.text(max_size=40))
def test_any_text(text: str) -> None:
    with pytest.raises(ConnectionConfigError):
        endpoint(text)
