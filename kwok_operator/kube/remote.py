"""Connects to another cluster by a kubeconfig from a Secret.

An account that may write a Secret must not thereby run programs in the operator's pod or read its
files. So such a kubeconfig may contain only data: exec plugins, auth-providers and paths are
refused. Like ConfigMaps, it is parsed with limits on depth and aliases (formats/yamltext.py).
"""

import base64
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kwok_operator.errors import ConnectionConfigError, one_line
from kwok_operator.formats.yamltext import DocumentError, load_documents
from kwok_operator.kube.connection import Endpoint
from kwok_operator.kube.kubeconfig import MAX_NAMES, Choice, Kubeconfig, make_kubeconfig, pick
from kwok_operator.kube.proxy import checked

MAX_LENGTH: Final = 256 * 1024
"""The most characters. A kubeconfig with a hundred contexts and their certificates is shorter, and
parsing a longer text would block the event loop."""

_REFUSED: Final = {
    "exec": "runs a program; put a token, or client-certificate-data and client-key-data",
    "auth-provider": "needs a program; put a token, or client-certificate-data and client-key-data",
    "certificate-authority": "is a file; put certificate-authority-data",
    "client-certificate": "is a file; put client-certificate-data",
    "client-key": "is a file; put client-key-data",
    "tokenFile": "is a file; put token",
    **dict.fromkeys(
        ("as", "as-uid", "as-groups", "as-user-extra"),
        "is not supported; put the credentials of the account itself",
    ),
}


def remote_endpoint(text: str, *, where: str) -> Endpoint:
    """Returns the endpoint of a kubeconfig's current context; `where` names the Secret, for
    messages.

    Raises ConnectionConfigError with one line: what is wrong, and what to write instead.
    """
    config = _parse(text, where=where)
    if not config.current_context:
        names = ", ".join(sorted(config.contexts)[:MAX_NAMES]) or "none"
        raise ConnectionConfigError(
            f"{where}: no current-context is set; set it to one of: {one_line(names, limit=300)}"
        )
    try:
        choice = pick(config, None)
    except ConnectionConfigError as error:
        raise ConnectionConfigError(f"{where}: {one_line(error, limit=500)}") from error
    try:
        return _endpoint(choice)
    except (ConnectionConfigError, ValueError) as error:
        words = one_line(error, limit=500)
        name = one_line(choice.name, limit=100)
        raise ConnectionConfigError(f"{where}: context {name}: {words}") from error


def _parse(text: str, *, where: str) -> Kubeconfig:
    if len(text) > MAX_LENGTH:
        raise ConnectionConfigError(
            f"{where} has {len(text)} characters, {MAX_LENGTH} are the most; leave only the "
            "context there that is needed"
        )
    try:
        documents = load_documents(text, where=where)
    except DocumentError as error:
        # The parser's message quotes the text, which may contain a credential.
        raise ConnectionConfigError(
            f"{where}, line {error.line}, column {error.column}, is not plain YAML; put a "
            "kubeconfig there"
        ) from None
    return make_kubeconfig(documents[0] if documents else None, where=where)


def _endpoint(choice: Choice) -> Endpoint:
    for body in (choice.cluster, choice.user):
        for key, remedy in _REFUSED.items():
            if body.get(key):
                raise ConnectionConfigError(f"{key} {remedy} instead")
    server = str(choice.cluster["server"]).rstrip("/")
    if not server.startswith("https://") or not _is_word(server):
        raise ConnectionConfigError(f"the server {server} must be a URL that begins with https://")
    _check_host(urlsplit(server).hostname, of="server")
    insecure = choice.cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(insecure, bool):
        raise ConnectionConfigError("insecure-skip-tls-verify must be true or false")
    tls_server_name = choice.cluster.get("tls-server-name")
    if tls_server_name is not None:
        _check_host(tls_server_name, of="tls-server-name")
    certificate = _pem(choice.user, "client-certificate-data")
    private_key = _pem(choice.user, "client-key-data")
    if bool(certificate) != bool(private_key):
        raise ConnectionConfigError("client-certificate-data and client-key-data go together")
    if private_key and "ENCRYPTED" in private_key:
        raise ConnectionConfigError("client-key-data needs a password; put a key without one")
    scheme, token = _credentials(choice.user)
    if not token and not certificate:
        raise ConnectionConfigError(
            "its user has no credentials; put a token, or client-certificate-data and "
            "client-key-data"
        )
    proxy = choice.cluster.get("proxy-url")
    if proxy:
        _check_host(urlsplit(checked(str(proxy), "proxy-url")).hostname, of="proxy-url")
    return Endpoint(
        server=server,
        description=f"context {one_line(choice.name, limit=100)} at {one_line(server)}",
        namespace=choice.namespace,
        ca_data=_pem(choice.cluster, "certificate-authority-data"),
        certificate_data=certificate,
        private_key_data=private_key,
        insecure=insecure,
        tls_server_name=tls_server_name,
        proxy=str(proxy) if proxy else None,
        scheme=scheme,
        token=token,
    )


def _credentials(user: Mapping[str, Any]) -> tuple[str, str | None]:
    """Returns the scheme of the Authorization header ("Bearer", "Basic"), and the text after it."""
    if user.get("token"):
        token = str(user["token"]).strip()
        if not _is_word(token):
            raise ConnectionConfigError("token must be one word, without spaces and line ends")
        return "Bearer", token
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        return "Basic", base64.b64encode(pair.encode()).decode()
    return "Bearer", None


def _check_host(host: object, *, of: str) -> None:
    # For impossible names the resolver and TLS would raise other errors later.
    try:
        if isinstance(host, str) and _is_word(host) and host.strip("."):
            host.encode("idna")
            return
    except UnicodeError:
        pass
    raise ConnectionConfigError(f"{of}: {host} is not the name or address of a host")


def _is_word(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _pem(body: Mapping[str, Any], key: str) -> str | None:
    data = body.get(key)
    if not data:
        return None
    try:
        return base64.b64decode(str(data), validate=False).decode("ascii")
    except ValueError as error:
        raise ConnectionConfigError(f"{key} is not PEM text in base64: {error}") from error
