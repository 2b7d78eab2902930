"""A program in place of Kueue's manager: its Configuration, its certificates and webhooks, a loop.

    python -m tests.e2e.kueue_program --config=FILE

    its CA --> the Secret, the webhook configurations and the CRD; once the files of the Secret are
    there --> webhooks, /readyz; a Job with the label of a queue is suspended, and admitted if the
    queue is there

As in Kueue's own, the certificate is for the name of the Service. It knows no quota and no
topology: a scenario about these needs the real one.
"""

import base64
import json
import os
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import trustme

from tests.e2e.api import Api, ApiError
from tests.fakes.kueue import GROUP, SERVED

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS: Final = "/apis/batch/v1/jobs"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
_PERIOD_SECONDS: Final = 0.2


class _Webhooks(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = review.pop("request")
        if self.path.startswith("/convert"):
            wanted = asked["desiredAPIVersion"]
            objects = [{**each, "apiVersion": wanted} for each in asked["objects"]]
            answer: dict[str, Any] = {"result": {"status": "Success"}}
            answer["convertedObjects"] = objects
        else:
            answer = {"allowed": True}
            labels = asked["object"]["metadata"].get("labels", {})
            if self.path.startswith("/suspend") and QUEUE in labels:
                patch = [{"op": "add", "path": "/spec/suspend", "value": True}]
                coded = base64.b64encode(json.dumps(patch).encode()).decode()
                answer |= {"patchType": "JSONPatch", "patch": coded}
        self._answer(json.dumps({**review, "response": {"uid": asked["uid"], **answer}}).encode())

    def do_GET(self) -> None:
        self._answer(b"ok")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Its log has no line for each request."""


def hand_out(api: Api, config: dict[str, Any], authority: trustme.CA) -> bytes:
    """Writes its certificate into the Secret, and its CA to all that call its webhooks. Returns
    tls.crt.
    """
    own = config["internalCertManagement"]
    namespace, name = config["namespace"], own["webhookServiceName"]
    issued = authority.issue_cert(f"{name}.{namespace}.svc")
    content = {"tls.crt": issued.cert_chain_pems[0], "tls.key": issued.private_key_pem}
    data = {key: base64.b64encode(pem.bytes()).decode() for key, pem in content.items()}
    secret = own["webhookSecretName"]
    api.patch(f"/api/v1/namespaces/{namespace}/secrets/{secret}", {"data": data})
    bundle = {"caBundle": base64.b64encode(authority.cert_pem.bytes()).decode()}
    base = name.removesuffix("-webhook-service")
    for kind in ("mutating", "validating"):
        path = f"{CONFIGURATIONS}/{kind}webhookconfigurations/{base}-{kind}-webhook-configuration"
        hooks = api.get(path)["webhooks"]
        hooks = [{**each, "clientConfig": each["clientConfig"] | bundle} for each in hooks]
        api.patch(path, {"webhooks": hooks})
    conversion = {"webhook": {"clientConfig": bundle}}
    api.patch(f"{CRDS}/localqueues.{GROUP}", {"spec": {"conversion": conversion}})
    return content["tls.crt"].bytes()


def admit(api: Api) -> None:
    """Lets the Jobs run whose queue is there."""
    queues = api.names(f"/apis/{SERVED}/localqueues")
    for job in api.list(JOBS)[0]:
        if job["spec"].get("suspend") and job["metadata"]["labels"].get(QUEUE) in queues:
            place, name = job["metadata"]["namespace"], job["metadata"]["name"]
            path = f"/apis/batch/v1/namespaces/{place}/jobs/{name}"
            api.patch(path, {"spec": {"suspend": False}})


def serve(port: int, context: ssl.SSLContext | None = None) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", port), _Webhooks)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    config = json.loads(Path(sys.argv[1].removeprefix("--config=")).read_text())
    api = Api(Path(os.environ["KUBECONFIG"]))
    own = hand_out(api, config, trustme.CA())
    certificate, key = (
        Path(config["webhook"]["certDir"], f"tls.{each}") for each in ("crt", "key")
    )
    while not certificate.exists() or certificate.read_bytes() != own:  # it may be an earlier one
        time.sleep(_PERIOD_SECONDS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    serve(config["webhook"]["port"], context)
    serve(int(config["health"]["healthProbeBindAddress"].rpartition(":")[2]))
    while True:
        try:
            admit(api)
        except ApiError as error:
            print(json.dumps({"level": "info", "msg": f"again: {error}"}), flush=True)
        time.sleep(_PERIOD_SECONDS)


if __name__ == "__main__":
    main()
