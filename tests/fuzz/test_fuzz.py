# SPDX-License-Identifier: Apache-2.0
"""A few documents of each kind, the same each time; ``make fuzz`` reads 10,000 of each.

What a long run found is in ``corpus`` and is read again here: write the bytes of a failing example
that Hypothesis prints into a file there.
"""

import os
import signal
from pathlib import Path

import pytest
from fuzz.kinds import kinds
from hypothesis import HealthCheck, given, seed, settings

from kernforge.errors import KernforgeError

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES, SEED = int(os.environ.get("EXAMPLES", "40")), int(os.environ.get("SEED", "14"))
HANG_S = 10
KINDS = list(kinds())
LIMITS = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


class HangError(BaseException):
    """A document took longer than ``HANG_S``; no handler of exceptions may catch it."""


@pytest.fixture(autouse=True)
def no_hang():
    def stop(_number, _frame):
        raise HangError(f"more than {HANG_S} seconds")

    old = signal.signal(signal.SIGALRM, stop)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def read_or_refuse(kind, data):
    """Read a document; anything but one of our errors, with a message, is raised."""
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        kind.read(data)
    except KernforgeError as error:
        if not error.message:
            raise


@pytest.mark.parametrize("name", KINDS)
def test_real_documents_are_read(name):
    for document in kinds()[name].seeds:
        kinds()[name].read(document)


@pytest.mark.parametrize("name", KINDS)
def test_documents_that_are_nearly_right_are_read_or_refused(name):
    kind = kinds()[name]

    @seed(SEED)
    @LIMITS
    @given(kind.mutants)
    def check(data):
        read_or_refuse(kind, data)

    check()


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*")), ids=lambda p: f"{p.parent.name}-{p.name}"
)
def test_what_failed_once_is_read_or_refused(path):
    (kind,) = (kind for name, kind in kinds().items() if name.replace(" ", "-") == path.parent.name)
    read_or_refuse(kind, path.read_bytes())
