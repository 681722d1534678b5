# SPDX-License-Identifier: Apache-2.0
"""Locks that processes and threads wait for."""

import errno
import threading

import pytest

from kernforge.errors import StorageError
from kernforge.system import files, process

HOLDERS = pytest.mark.parametrize("hold", [files.locked, files.claimed])


@HOLDERS
def test_one_thread_holds_a_lock_or_a_fixed_directory_at_a_time(tmp_path, hold):
    order = []

    def second():
        with hold(tmp_path / "lock"):
            order.append("second")

    with hold(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


@HOLDERS
def test_an_interrupt_in_another_thread_ends_a_wait(tmp_path, hold):
    errors = []
    waits = threading.Event()

    def wait():
        waits.set()
        try:
            with hold(tmp_path / "lock"):
                pass
        except InterruptedError as error:
            errors.append(error)

    with hold(tmp_path / "lock"):
        thread = threading.Thread(target=wait)
        thread.start()
        waits.wait()
        # As its users do: the wait may begin after a call.
        while thread.is_alive():
            process.kill_all()
            thread.join(0.02)
    (error,) = errors
    assert error.filename == str(tmp_path / "lock")
    with hold(tmp_path / "lock"):
        pass


def test_where_else_to_write_is_said_for_a_project_and_for_our_own_files(tmp_path):
    for number in (errno.EROFS, errno.EACCES, errno.ENOSPC):
        with pytest.raises(StorageError) as raised, files.disk_errors("writing a.cu"):
            raise OSError(number, "why", "a.cu")
        assert "write to another directory; that of kernforge's own files is" in raised.value.hint
        assert raised.value.hint.endswith("that of files of a hub HF_HOME")


def test_a_copy_of_what_cannot_be_read_names_the_source(tmp_path, monkeypatch):
    def refused(source, target):
        raise PermissionError(errno.EACCES, "no", str(source))

    monkeypatch.setattr("shutil.copyfile", refused)
    with pytest.raises(StorageError, match=r"writing .*: .*a\.cu: no"):
        files.copy_file(tmp_path / "a.cu", tmp_path / "new" / "a.cu")
