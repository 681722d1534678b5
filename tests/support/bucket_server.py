# SPDX-License-Identifier: Apache-2.0
"""Buckets on this machine: moto's S3, which honours conditions of writes and parts of uploads."""

import contextlib
import http.client
import itertools
import threading
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server


# Requests of a test itself; moto looks for a signature and not at it.
_OWNER = {
    "X-Unseen": "1",
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request",
}


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_):
        """Say nothing."""


class BucketServer:
    """A server with any number of buckets.

    Attributes:
        requests: ``METHOD path`` of each request since it was last cleared.
        before: called with the number of a request, from 1, and its text; what it returns is the
            status of the answer in the place of moto's, None for none.
        after: called in the same way when moto has answered, before the client is told.
    """

    def __init__(self):
        self.requests = []
        self.before = self.after = lambda _number, _request: None
        self._names = (f"toys-{number}" for number in itertools.count())
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._one = threading.Lock()  # moto compares and writes in two steps
        self._server = make_server("127.0.0.1", 0, self._answer, True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.variables = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "reader-and-writer",
            "AWS_SECRET_ACCESS_KEY": "of-this-machine",
            "AWS_REGION": "us-east-1",
        }
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def add(self):
        """Make a bucket; returns its name."""
        name = next(self._names)
        self._ask("PUT", name)
        return name

    def write(self, path, data):
        """Put other bytes into an object."""
        self._ask("PUT", path, data)

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _ask(self, method, path, data=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._server.server_port)
        with contextlib.closing(connection):
            connection.request(method, f"/{path}", data, _OWNER)
            response = connection.getresponse()
            content = response.read()
        assert response.status == 200, content
        return content

    def _answer(self, environ, start_response):
        if "HTTP_X_UNSEEN" in environ:
            return list(self._moto(environ, start_response))
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        self.requests.append(request)
        number = len(self.requests)
        if status := self.before(number, request):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(f"{status} fault", [("Content-Length", "0")])
            return []
        with self._one:
            answer = list(self._moto(environ, start_response))
        self.after(number, request)
        return answer
