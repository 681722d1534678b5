# SPDX-License-Identifier: Apache-2.0

import pytest

from kernforge.errors import CheckError, KernforgeError, NetworkError
from kernforge.system import untrusted

JSON = {
    "far too deep": ("[" * 100_000, "too deep"),
    "a key twice": ('{"a": 1, "b": 2, "a": 3}', "twice"),
    "a long integer": ("9" * 5000, "digits"),
    "half a pair": ('{"a": ["\\ud800"]}', "surrogate"),
    "half a pair in a name": ('{"\\udfff": 1}', "surrogate"),
    "a NUL character": ('"\\u0000"', "NUL"),
    "not UTF-8": (b'"\xff"', "decode"),
    "too large": (b'"' + bytes(64 * 10**6) + b'"', "64,000,002 bytes"),
}
TOML = {
    "far too deep": ("a = " + "[" * 5000, "too deep"),
    "a key of many parts": ("a." * 5000 + "a = 1", "line 1 has a key"),
    "a header of many parts": ("\n[" + "'a'." * 5000 + "a]", "line 2 has a key"),
    "a NUL character": ('a = "\\u0000"', "NUL"),
    "too large": ("#" * 1_000_001, "1,000,001 bytes"),
}


@pytest.mark.parametrize(("text", "reason"), JSON.values(), ids=JSON)
def test_json_is_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        untrusted.parse_json(text)


@pytest.mark.parametrize(("text", "reason"), TOML.values(), ids=TOML)
def test_toml_is_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        untrusted.parse_toml(text)


def test_good_documents_are_read():
    text = '{"a": [1, 2.5, null, "\\u00e9\\ud83d\\ude00"]}'
    assert untrusted.parse_json(text.encode()) == {"a": [1, 2.5, None, "é😀"]}
    text = "requires = [" + ", ".join(f'"package{n}>=1.2.3"' for n in range(60)) + "]"
    assert len(untrusted.parse_toml(text)["requires"]) == 60


def test_exceptions_of_a_foreign_parser_are_converted():
    def error(reason):
        return CheckError(f"no file: {reason}")

    with pytest.raises(CheckError, match="no file: KeyError"), untrusted.foreign_parser(error):
        raise KeyError
    with pytest.raises(KernforgeError, match="ours"), untrusted.foreign_parser(error):
        raise KernforgeError("ours")


def test_a_large_or_slow_download_is_aborted():
    with pytest.raises(NetworkError, match="more than the expected 10 bytes"):
        list(untrusted.bounded(iter([b"0123", b"456789a"]), "the server", 10))
    times = iter(range(0, 1000, 5))
    drip = (b"x" for _ in range(100))
    with pytest.raises(NetworkError, match=r"sent 6 bytes in 30 seconds"):
        list(untrusted.bounded(drip, "the server", 1000, lambda: next(times)))
