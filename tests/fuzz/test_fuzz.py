# SPDX-License-Identifier: Apache-2.0
"""A few documents of each kind, the same each time; ``make fuzz`` reads 10,000 of each.

What a long run found is in ``corpus`` and is read again here.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from fuzz import engine
from fuzz.kinds import kinds

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES = 40
KINDS = list(kinds())


@pytest.mark.parametrize("name", KINDS)
def test_real_documents_are_read(name):
    kind = kinds()[name]
    outcome = engine.Outcome()
    for seed in kind.seeds:
        engine.attempt(kind, seed, outcome)
    assert not outcome.failures
    assert outcome.read == len(kind.seeds)


@pytest.mark.parametrize("name", KINDS)
def test_documents_that_are_nearly_right_are_read_or_refused(name):
    engine.run(kinds()[name], examples=EXAMPLES, seed=14, outcome=engine.Outcome(), find=True)


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*")), ids=lambda p: f"{p.parent.name}-{p.name}"
)
def test_what_failed_once_is_read_or_refused(path):
    (kind,) = (kind for name, kind in kinds().items() if name.replace(" ", "-") == path.parent.name)
    assert not engine.attempt(kind, path.read_bytes(), engine.Outcome())


def _fail(data):
    raise ValueError(len(data))


def _hang(_data):
    while True:
        pass


@pytest.mark.parametrize(("read", "error"), [(_fail, "ValueError at"), (_hang, "HangError at")])
def test_a_failure_is_reported(monkeypatch, read, error):
    monkeypatch.setattr(engine, "HANG_S", 0.05)
    broken = replace(kinds()["redirect"], read=read)
    with pytest.raises(AssertionError, match=error):
        engine.run(broken, examples=1, seed=1, outcome=engine.Outcome(), find=True)
