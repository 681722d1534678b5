# SPDX-License-Identifier: Apache-2.0

import gzip

import pytest
from support import bad_server

from kernforge.errors import NetworkError
from kernforge.system import untrusted
from kernforge.toolchain.index.http import Transport
from kernforge.toolchain.index.pip_config import PipConfig


@pytest.fixture
def transport():
    found = Transport(PipConfig(index_urls=(), timeout_s=5))
    yield found
    found.close()


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(untrusted, "_WINDOW_S", 0.3)


def test_a_page_without_end_is_left(transport):
    refused = pytest.raises(NetworkError, match="more than the expected 64,000,000 bytes")
    with bad_server.serve(bad_server.endless) as server, refused:
        transport.page(f"{server.url}/simple/x/")


def test_a_page_that_grows_is_left(transport):
    packed = gzip.compress(bytes(100_000_000))

    def answer(handler):
        handler.start(Content_Length=len(packed), Content_Encoding="gzip")
        handler.wfile.write(packed)

    with bad_server.serve(answer) as server, pytest.raises(NetworkError, match="more than the"):
        transport.page(f"{server.url}/simple/x/")


READS = [lambda t, url: t.page(url), lambda t, url: t.body(url).read()]


@pytest.mark.parametrize("read", READS, ids=["page", "body"])
def test_what_drips_is_left(transport, short, read):
    with bad_server.serve(bad_server.dripping) as server:
        with pytest.raises(NetworkError, match=r"bytes in .* seconds"):
            read(transport, f"{server.url}/simple/x/")
        assert len(server.requests) == 1


def test_a_range_that_is_longer_than_asked_for_is_left(transport):
    def answer(handler):
        handler.start(206, Content_Range="bytes 10-19/1000")
        while not handler.server.stopped.is_set():
            handler.wfile.write(b"x" * 65536)

    with bad_server.serve(answer) as server:
        with pytest.raises(NetworkError, match="more than the expected 10 bytes"):
            transport.body(f"{server.url}/a.whl", start=10, stop=20).read()
        with pytest.raises(NetworkError, match="more than the expected 100 bytes"):
            transport.body(f"{server.url}/a.whl", start=-100).read()


def test_an_interrupted_body_is_an_error(transport):
    def answer(handler):
        handler.start(Content_Length=1000)
        handler.wfile.write(b"x" * 10)

    with bad_server.serve(answer) as server, pytest.raises(NetworkError, match="cannot be read"):
        transport.body(f"{server.url}/a.whl").read()


def test_a_server_that_asks_to_wait_for_a_day_is_not_waited_for(transport, monkeypatch):
    waits = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waits.append)
    busy = bad_server.serve(lambda handler: handler.start(429, Retry_After=10_000))
    with busy as server, pytest.raises(NetworkError, match=r"429"):
        transport.page(f"{server.url}/simple/x/")
    assert sum(waits) < 60
