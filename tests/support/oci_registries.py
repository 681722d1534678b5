# SPDX-License-Identifier: Apache-2.0
"""Registries of the OCI protocol: Debian's, one in memory that may misbehave, a token server."""

import base64
import contextlib
import hashlib
import http.client
import json
import re
import shutil
import ssl
import subprocess
import time
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from support import bad_server, processes

DOCKER_REGISTRY = shutil.which("docker-registry")
BASIC = base64.b64encode(b"ann:se:cret").decode()
BUNDLE = b'{"a": "bundle"}'


def write_login(path, host, entry=None, **more):
    """A file of docker's logins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    auths = {host: {"auth": BASIC} if entry is None else entry}
    path.write_text(json.dumps({"auths": auths, **more}))
    return path


@contextlib.contextmanager
def docker_registry(root, auth=""):
    """Debian's registry on a port of its own; yields its host and port.

    Args:
        auth: the section ``auth`` of its configuration, in YAML.
    """
    root.mkdir(parents=True, exist_ok=True)

    def start(port):
        (root / "config.yml").write_text(
            f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n"
            f"storage: {{filesystem: {{rootdirectory: '{root / 'data'}'}}}}\n{auth}"
        )
        with (root / "log").open("wb") as log:
            argv = [DOCKER_REGISTRY, "serve", root / "config.yml"]
            # REGISTRY_AUTH_FILE is a login to podman, and to this server a configuration.
            return processes.start(argv, stdout=log, stderr=subprocess.STDOUT, env={})

    process, port = processes.listening(start)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def token_server(root):
    """Gives tokens for all to one user; yields the section ``auth`` of a registry."""
    root.mkdir(parents=True, exist_ok=True)
    pem = bad_server.self_signed(root / "tokens.pem").read_text()
    key = serialization.load_pem_private_key(pem.encode(), None)
    certificate = pem[pem.index("-----BEGIN CERTIFICATE") :]
    (root / "tokens.pem").write_text(certificate)
    x5c = [base64.b64encode(ssl.PEM_cert_to_DER_cert(certificate)).decode()]

    def answer(handler):
        form = parse_qs(_body(handler) or urlsplit(handler.path).query)
        scopes = " ".join(form.get("scope", [])).split()
        if handler.server.tokens[-1] != f"Basic {BASIC}" and "refresh-me" not in str(form):
            send(handler, 401)
            return
        parts = [scope.rsplit(":", 2) for scope in scopes]
        access = [{"type": k, "name": n, "actions": a.split(",")} for k, n, a in parts]
        now = int(time.time())
        claims = {"iss": "tokens", "sub": "ann", "aud": "test", "access": access, "jti": "one"}
        claims |= {"iat": now, "nbf": now - 60, "exp": now + 300}
        header = {"typ": "JWT", "alg": "RS256", "x5c": x5c}
        signed = ".".join(_b64(json.dumps(part).encode()) for part in (header, claims))
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        handler.json({"token": f"{signed}.{_b64(signature)}"})

    with bad_server.serve(answer) as server:
        yield (
            f"auth: {{token: {{realm: '{server.url}/token', service: test, issuer: tokens, "
            f"rootcertbundle: '{root / 'tokens.pem'}'}}}}\n"
        )


def _b64(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _body(handler):
    return handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode("latin-1")


def send(handler, status, body=b"", **headers):
    handler.start(status, Content_Length=len(body), **headers)
    if handler.command != "HEAD":
        handler.wfile.write(body)
    return True


@contextlib.contextmanager
def memory_registry():
    """A registry of protocol 1.1, with referrers.

    It has ``stored``, bytes by path; and ``before``, which is called with the handler before each
    answer: if it returns True, it has answered.
    """
    with bad_server.serve(_answer) as server:
        server.stored, server.before = {}, lambda _handler: False
        server.host = urlsplit(server.url).netloc
        server.location = f"oci+http://{server.host}"
        yield server


def _answer(handler):
    stored, body = handler.server.stored, _body(handler).encode("latin-1")
    path, _, query = handler.path.partition("?")
    folder, digest = path.rpartition("/")[0], f"sha256:{hashlib.sha256(body).hexdigest()}"
    if handler.server.before(handler):
        return
    if handler.command == "POST":
        send(handler, 202, Location=f"{path}one?a=b")
    elif handler.command == "PUT" and folder.endswith("/uploads"):
        assert parse_qs(query)["digest"] == [digest]
        stored[f"{folder.removesuffix('uploads')}{digest}"] = body
        send(handler, 201)
    elif handler.command == "PUT":
        stored.update({path: body, f"{folder}/{digest}": body})
        subject = json.loads(body).get("subject")
        send(handler, 201, **({"OCI_Subject": subject["digest"]} if subject else {}))
    elif folder.endswith("/tags"):
        start = f"{folder.removesuffix('tags')}manifests/"
        names = [each.removeprefix(start) for each in stored if start in each]
        handler.json({"tags": [each for each in names if ":" not in each]})
    elif path not in stored:
        send(handler, 404)
    else:
        data, status = stored[path], 200
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if given := re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", "")):
            data, status = data[int(given[1]) : int(given[2] or len(data)) + 1], 206
        send(handler, status, data, Docker_Content_Digest=digest)


@contextlib.contextmanager
def requests_made():
    """A list of the URLs that this process requests meanwhile."""
    made, send = [], http.client.HTTPConnection.request

    def count(self, method, url, *rest, **options):
        made.append(f"{method} {url}")
        return send(self, method, url, *rest, **options)

    with mock.patch.object(http.client.HTTPConnection, "request", count):
        yield made
