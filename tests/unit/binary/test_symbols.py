# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.binary import symbols


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z1kPf", "k(float*)"),
        (
            "_ZN12_GLOBAL__N_11kIfLi4EEEvPKT_l",
            "void (anonymous namespace)::k<float, 4>(float const*, long)",
        ),
        ("_Zz", "_Zz"),
        ("plain", "plain"),
        ("f", "f"),  # a function of C, not the type float
    ],
)
def test_names_of_cpp(symbol, name):
    assert symbols.demangled(symbol) == name


def test_without_a_cpp_runtime_a_symbol_is_its_own_name(monkeypatch):
    monkeypatch.setattr(symbols, "_RUNTIME", "libstdc++.so.0")
    symbols._demangler.cache_clear()
    assert symbols.demangled("_Z1kPf") == "_Z1kPf"
    monkeypatch.undo()
    symbols._demangler.cache_clear()
