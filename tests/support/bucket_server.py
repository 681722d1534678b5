# SPDX-License-Identifier: Apache-2.0
"""Buckets on this machine: moto's S3, which honours conditions of writes and parts of uploads."""

import contextlib
import http.client
import itertools
import threading
import warnings
from collections import Counter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_):
        """Say nothing."""


class BucketServer:
    """A server with any number of buckets.

    Attributes:
        requests: ``METHOD path`` of each request since ``requests`` was last cleared.
        fault: called with the number of a request, from 1, and its text; what it returns is the
            status of the answer in the place of moto's. None for none.
    """

    def __init__(self):
        self.requests, self.fault = [], None
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

    def read(self, path):
        """The bytes of an object, by ``bucket/path``."""
        return self._ask("GET", path)

    def write(self, path, data):
        """Put other bytes into an object."""
        self._ask("PUT", path, data)

    def counts(self):
        """How many requests of each method came."""
        return dict(Counter(request.split()[0] for request in self.requests))

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _ask(self, method, path, data=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._server.server_port)
        with contextlib.closing(connection):
            connection.request(method, f"/{path}", data, {"X-Unseen": "1"})
            response = connection.getresponse()
            content = response.read()
        assert response.status == 200, content
        return content

    def _answer(self, environ, start_response):
        with self._one:
            if "HTTP_X_UNSEEN" not in environ:
                request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
                self.requests.append(request)
                status = self.fault and self.fault(len(self.requests), request)
                if status:
                    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                    start_response(f"{status} fault", [("Content-Length", "0")])
                    return []
            return list(self._moto(environ, start_response))
