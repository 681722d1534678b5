# SPDX-License-Identifier: Apache-2.0
import hashlib
import random

import pytest
from support.wheel_maker import make_wheel

from kernforge.errors import IntegrityError, NetworkError
from kernforge.toolchain.index import remote_zip
from kernforge.toolchain.index.remote_zip import RangesUnsupportedError, RemoteWheel

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


def test_a_server_without_ranges_is_recognised(transport, url, index_server):
    index_server.ranges = False
    with pytest.raises(RangesUnsupportedError):
        RemoteWheel(transport, url)


def test_a_broken_connection_is_an_error_and_not_a_short_file(transport, url, index_server):
    wheel = RemoteWheel(transport, url)
    index_server.truncate_next = 10
    with pytest.raises(NetworkError):
        dict(wheel.fetch(["big/first.h"]))


def test_members_are_verified_against_the_record(tmp_path):
    path = make_wheel(tmp_path / NAME, {"a.h": b"a", "b.h": b"b"}, tampered=("b.h",))
    wheel = remote_zip.LocalWheel(str(path))
    sha256 = hashlib.sha256(wheel.record()).hexdigest()
    assert dict(wheel.verified(["a.h"], sha256)) == {"a.h": b"a"}
    with pytest.raises(IntegrityError, match=r"b\.h is not what the wheel's RECORD promises"):
        dict(wheel.verified(["b.h"], sha256))
    with pytest.raises(IntegrityError, match="its RECORD has sha256"):
        dict(wheel.verified(["a.h"], "0" * 64))


def test_a_wheel_without_a_record_cannot_be_verified(tmp_path):
    path = make_wheel(tmp_path / NAME, {"a.h": b"a"}, record=False)
    with pytest.raises(IntegrityError, match="no RECORD"):
        remote_zip.LocalWheel(str(path)).record()
