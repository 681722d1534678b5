# SPDX-License-Identifier: Apache-2.0
"""Stores for tests of modules that are compiled in this process."""

import pytest
from support import trees

from kernforge.binary import elf, fatbin
from kernforge.builder.results import STORE_KIND
from kernforge.extension import session
from kernforge.store.local import Store

_NOTE = ".note.nv.tkinfo"


def make(top, kept_home, monkeypatch):
    """An empty store but for what the test machine keeps of toolchains; it is used from now on."""
    (top / "store").mkdir(parents=True)
    (kept_home / "store" / "toolchains").mkdir(parents=True, exist_ok=True)
    (top / "store" / "toolchains").symlink_to(kept_home / "store" / "toolchains")
    for kept in ("store/compilers", "jit"):
        (kept_home / kept).mkdir(parents=True, exist_ok=True)
        (top / kept).symlink_to(kept_home / kept)
    monkeypatch.setenv("KERNFORGE_HOME", str(top))
    return top


@pytest.fixture
def home(tmp_path, kept_home, monkeypatch):
    """A store of its own, and a process that has compiled nothing."""
    forget(monkeypatch)
    return make(tmp_path / "home", kept_home, monkeypatch)


def forget(monkeypatch):
    """A process that has compiled nothing, but for what cannot be unloaded."""
    before = session.PROCESS
    after = session.JitSession(namespaces=before.namespaces, imports=before.imports)
    monkeypatch.setattr(session, "PROCESS", after)


def use_kept(kept_home, monkeypatch):
    """Use the kept store in a new process, so that nothing is compiled twice.

    Sources, flags, headers and compilers are in a result's key.
    """
    monkeypatch.setenv("KERNFORGE_HOME", str(kept_home))
    forget(monkeypatch)


def _results(home, made):
    """Results that have one of these files."""
    trees = (home / "store" / STORE_KIND).glob("??/????*")
    return [tree for tree in trees if any((tree / name).exists() for name in made)]


def keep_results(home, kept_home):
    """Put a test's compiled modules, half a minute of work each, into the kept store."""
    kept = Store(kept_home / "store")
    for tree in _results(home, ("out.o",)):
        if tree.is_symlink():  # It was lent.
            continue
        kept.tree(STORE_KIND, tree.name, lambda new, old=tree: trees.link_tree(old, new))


def lend_results(home, kept_home):
    """Fill a store with results of compilers for the same input, without notes on failures."""
    store = Store(home / "store")
    for tree in _results(kept_home, ("out.o",)):
        place = store.path(STORE_KIND, tree.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(tree)


# -- edits of device code ------------------------------------------------------------------


def ways(home):
    """How many units had their device code swapped, and how often nvcc compiled that code alone."""
    trees = list((home / "store" / STORE_KIND).glob("??/" + "?" * 64))
    return tuple(
        sum((tree / name).is_file() for tree in trees) for name in ("code.fatbin", "unit.cubin")
    )


def device_code(module):
    """The one cubin of an object or of a module."""
    found = fatbin.one_cubin(elf.section(module, fatbin.SECTION))
    assert found is not None
    return found


def same_code(one, other, *, ordered=True):
    """Whether two cubins are alike, the compiler's note of itself and maybe symbols aside."""
    aside = dict.fromkeys((_NOTE, *(() if ordered else (".symtab", ".strtab"))), b"")
    return elf.contents(one) | aside == elf.contents(other) | aside


def same_module(one, other):
    """Whether two modules are alike in code and data, the compiler's note of itself aside."""
    a, b = elf.contents(one), elf.contents(other)
    notes = (fatbin.SECTION, ".note", ".symtab", ".strtab")
    data = all(a[name] == b.get(name) for name in a if not name.startswith(notes))
    return data and same_code(device_code(one), device_code(other))
