# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from support.wheel_maker import make_wheel

from kernforge.errors import IntegrityError
from kernforge.toolchain.index import remote_zip
from kernforge.toolchain.index.remote_zip import RemoteWheel

NAME = "big-1.0-py3-none-any.whl"


@pytest.fixture
def members():
    # Noise does not compress, so that the archive is as large as it looks.
    noise = random.Random(7).randbytes
    return {
        "big/first.h": b"first",
        "big/library.so": noise(5 << 20),
        "big/second.h": b"second",
        "big/third.h": b"third",
        "big/other.so": noise(3 << 20),
        "big/last.h": b"last" * 50_000,
    }


@pytest.fixture
def url(index_server, members):
    make_wheel(index_server.root / NAME, members)
    return f"{index_server.url}/{NAME}"


def test_only_what_is_wanted_is_read(transport, url, members, index_server):
    headers = [name for name in members if name.endswith(".h")]
    wheel = RemoteWheel(transport, url)
    assert dict(wheel.fetch(headers)) == {name: members[name] for name in headers}
    # The end of the archive, then three runs of neighbours.
    assert len(index_server.requests) == 1 + 3
    assert transport.received < 3 << 20


def test_a_central_directory_longer_than_the_first_request(transport, url, monkeypatch, members):
    monkeypatch.setattr(remote_zip, "_TAIL", 100)
    wheel = RemoteWheel(transport, url)
    assert set(wheel.names()) >= set(members)


def test_a_wheel_without_a_record_cannot_be_verified(tmp_path):
    path = make_wheel(tmp_path / NAME, {"a.h": b"a"}, record=False)
    with pytest.raises(IntegrityError, match="no RECORD"):
        remote_zip.LocalWheel(str(path)).record()
