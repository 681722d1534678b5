# SPDX-License-Identifier: Apache-2.0
"""Locks that processes and threads wait for."""

import errno
import os
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


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_one_thread_holds_a_lock_where_the_file_system_has_none(tmp_path, monkeypatch, number):
    """As NFS without its lock server, Lustre without -o flock; a killed holder is no holder."""

    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refused)
    (tmp_path / "lock.held").write_text(f"{2**22 + 1} on {os.uname().nodename}")
    test_one_thread_holds_a_lock_or_a_fixed_directory_at_a_time(tmp_path, files.locked)
    with files.claimed(tmp_path / "fixed") as held:
        assert not held
    assert [path.name for path in tmp_path.glob("*.held")] == []


@HOLDERS
def test_a_long_wait_names_the_process(tmp_path, monkeypatch, caplog, hold):
    monkeypatch.setattr(files, "_SAID_S", 0.0)
    test_one_thread_holds_a_lock_or_a_fixed_directory_at_a_time(tmp_path, hold)
    assert f"waiting for process {os.getpid()}, which uses {tmp_path / 'lock'}" in caplog.messages


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ESTALE, errno.EIO, errno.ENOTDIR])
def test_an_error_of_the_disk_has_its_own_words_and_no_guess(tmp_path, monkeypatch, number):
    def fails(*_):
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(StorageError, match=f"{tmp_path}/file: {os.strerror(number)}") as error:
        files.write_atomic(tmp_path / "file", "text")
    assert ("must be a directory" in error.value.hint) == (number == errno.ENOTDIR)


def test_a_file_is_written_where_the_file_system_cannot_flush(tmp_path, monkeypatch):
    def refused(_):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr("os.fsync", refused)
    files.write_atomic(tmp_path / "file", "text")
    files.flush(tmp_path)
    assert (tmp_path / "file").read_text() == "text"


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
