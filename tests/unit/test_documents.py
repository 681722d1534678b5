# SPDX-License-Identifier: Apache-2.0

import time

import pytest

from kernforge import documents
from kernforge.errors import CheckError, KernforgeError

REFUSED = {
    "too deep": ("[" * 70 + "]" * 70, "64 deep"),
    "far too deep": ("[" * 100_000, "64 deep"),
    "too many": ("[" + "0," * 1_000_001 + "0]", "values"),
    "twice": ('{"a": 1, "b": 2, "a": 3}', "'a' occurs twice"),
    "not a number": ('{"a": NaN}', "NaN is not a number"),
    "a long integer": ("9" * 5000, "digits"),
    "half a pair": ('{"a": ["\\ud800"]}', "surrogate"),
    "half a pair in a name": ('{"\\udfff": 1}', "surrogate"),
    "a NUL character": ('"\\u0000"', "NUL"),
    "not UTF-8": (b'"\xff"', "decode"),
    "a long name": ('{"' + "k" * 5000 + '": 1}', "4,096 characters"),
    "too large": (b'"' + bytes(64 * 10**6) + b'"', "64,000,002 bytes"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_json_is_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        documents.parse_json(text)


def test_json_that_is_fine_is_read():
    text = '{"a": [1, 2.5, null, "\\u00e9\\ud83d\\ude00"]}'
    assert documents.parse_json(text.encode()) == {"a": [1, 2.5, None, "é😀"]}


TOML = {
    "too deep": ("a = " + "[" * 70 + "]" * 70, "64 deep"),
    "far too deep": ("a = " + "[" * 5000, "64 deep"),
    "a key of many parts": ("a." * 5000 + "a = 1", "line 1 has a key"),
    "a header of many parts": ("\n[" + "'a'." * 5000 + "a]", "line 2 has a key"),
    "a long integer": ("a = " + "9" * 5000, "digits"),
    "a NUL character": ('a = "\\u0000"', "NUL"),
    "too large": ("#" * 1_000_001, "1,000,001 bytes"),
}


@pytest.mark.parametrize(("text", "reason"), TOML.values(), ids=TOML)
def test_toml_is_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        documents.parse_toml(text)


def test_toml_with_many_dots_in_quotes_is_read():
    text = "requires = [" + ", ".join(f'"package{n}>=1.2.3"' for n in range(60)) + "]"
    assert len(documents.parse_toml(text)["requires"]) == 60


def test_the_worst_toml_of_its_size_takes_seconds():
    line = "a." * 63 + "a{} = 1\n"
    began = time.process_time()
    documents.parse_toml("".join(line.format(n) for n in range(1000)))
    assert time.process_time() - began < 20


def test_what_a_foreign_parser_raises_becomes_ours():
    def error(reason):
        return CheckError(f"no file: {reason}")

    with pytest.raises(CheckError, match="no file: KeyError"), documents.foreign_parser(error):
        raise KeyError
    with pytest.raises(KernforgeError, match="ours"), documents.foreign_parser(error):
        raise KernforgeError("ours")
