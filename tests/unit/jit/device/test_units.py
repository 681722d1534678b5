# SPDX-License-Identifier: Apache-2.0
"""What edits of device code remember, in several threads at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from kernforge.jit.device import units
from kernforge.jit.device.units import DeviceSession, HostObject


def test_the_oldest_objects_are_forgotten(monkeypatch):
    monkeypatch.setattr(units, "_MOST_HOSTS", 10)
    session = DeviceSession()
    add = lambda n: session.add_host(f"host {n}", HostObject(key=str(n), code=b""))  # noqa: E731
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(2000)))
    assert sum(session.host(f"host {number}") is not None for number in range(2000)) == 10


def test_what_is_found_of_an_object_is_noted_while_it_is_remembered():
    session = DeviceSession()
    session.add_host("host", HostObject(key="1", code=b""))
    session.change_host("host", agrees=True)
    session.change_host("gone", agrees=True)
    assert session.host("host").agrees
    assert session.host("gone") is None
    session.forget_host("host")
    assert session.host("host") is None


def test_a_unit_of_the_store_is_read_by_one_thread():
    session = DeviceSession()
    unit = SimpleNamespace(path="a.cu")
    session.remember(SimpleNamespace(cuda=(unit,)))
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(session.take_earlier, ["a.cu"] * 8))
    assert [each for each in taken if each] == [unit]


def test_a_module_is_valid_until_it_is_refuted():
    session, path = DeviceSession(), Path("/store/a.so")
    assert session.is_valid(path)
    session.refute(path)
    assert not session.is_valid(path)
    assert session.is_valid(Path("/store/b.so"))
    assert DeviceSession().is_valid(path)


def test_all_background_work_is_waited_for():
    session, done = DeviceSession(), []

    def work():
        threading.Event().wait(0.02)
        done.append(1)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: session.start(work), range(20)))
        list(threads.map(lambda _: session.wait(), range(8)))
    assert len(done) == 20


def test_texts_are_split_once():
    session = DeviceSession()
    text = "__global__ void k() { }\n"
    assert session.split(text, frozenset(), exact=False) is session.split(
        text, frozenset(), exact=False
    )
