# SPDX-License-Identifier: Apache-2.0
"""A setup.py is followed without being run: what it computes from files and literals is known."""

import pytest

from kernforge.adopt.script import Reader, Unknown

HEAD = """
import os, os.path as osp, glob, sys, subprocess, torch
from itertools import product
from pathlib import Path
from setuptools import setup, find_packages
from torch.utils import cpp_extension
from torch.utils.cpp_extension import BuildExtension, CUDAExtension, CppExtension, CUDA_HOME
here = osp.dirname(osp.abspath(__file__))
"""


@pytest.fixture
def follow(tmp_path):
    for name in ("csrc/a.cpp", "csrc/b.cpp", "csrc/cuda/a.cu"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    def read(text):
        reader = Reader(tmp_path / "setup.py")
        reader.read(HEAD + text)
        return reader

    return read


def value(follow, expression):
    reader = follow(f"setup(name='x', value={expression})")
    return reader.calls[-1].get("value")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("['-O3'] + ['-lineinfo']", ["-O3", "-lineinfo"]),
        ("glob.glob('csrc/*.cpp')", ["csrc/a.cpp", "csrc/b.cpp"]),
        ("sorted(str(p) for p in Path('csrc').rglob('*.cu'))", ["csrc/cuda/a.cu"]),
        # As the setup.py of pytorch/extension-cpp has it.
        (
            "list(glob.glob(os.path.join(os.path.dirname(os.path.curdir), 'csrc', '*.cpp')))",
            ["csrc/a.cpp", "csrc/b.cpp"],
        ),
        ("[f for f in os.listdir('csrc') if f.endswith('.cpp')]", ["a.cpp", "b.cpp"]),
        ("f'x{1 + 1}' if torch.cuda.is_available() else 'y'", "x2"),
        ("osp.relpath(osp.join(here, 'csrc'), here)", "csrc"),
        ("dict(cxx=['-O2'], **{'nvcc': []})", {"cxx": ["-O2"], "nvcc": []}),
        ("[(a, b) for a, b in product('ab', [1])]", [("a", 1), ("b", 1)]),
        ("os.environ.get('NOT_SET', '7')", "7"),
        ("'_'.join(reversed('a-b'.split('-')))", "b_a"),
        ("sys.platform == 'win32' or CUDA_HOME is not None", True),
        ("(lambda n, m=2: n * m)(3)", 6),
        ("[1, 2, 3][-1]", 3),
    ],
)
def test_expressions(follow, expression, expected):
    assert value(follow, expression) == expected


def test_functions_loops_and_changes_in_place(follow):
    reader = follow(
        """
def extensions():
    found = []
    for path in sorted(glob.glob(osp.join('csrc', '*.cpp'))):
        name = path.split(os.sep)[-1][:-4]
        kernel = osp.join('csrc', 'cuda', f'{name}.cu')
        flags = {'cxx': ['-O3']}
        flags['nvcc'] = []
        flags['nvcc'] += ['-lineinfo']
        kind = CUDAExtension if osp.exists(kernel) else CppExtension
        found += [kind(f'ops.{name}', [path] + ([kernel] if osp.exists(kernel) else []), extra_compile_args=flags)]
    return found

setup(name='ops', ext_modules=extensions(), cmdclass={'build_ext': BuildExtension})
"""
    )
    made = [(c.function, c.get("name", 0), c.get("sources", 1)) for c in reader.calls[:-1]]
    assert made == [
        ("CUDAExtension", "ops.a", ["csrc/a.cpp", "csrc/cuda/a.cu"]),
        ("CppExtension", "ops.b", ["csrc/b.cpp"]),
    ]
    assert reader.calls[0].get("extra_compile_args") == {"cxx": ["-O3"], "nvcc": ["-lineinfo"]}
    assert reader.doubts == {}


def test_nothing_is_run_and_what_only_a_run_would_give_is_unknown(follow, tmp_path):
    reader = follow(
        """
open(osp.join(here, 'ran'), 'w').write('x')
os.system('touch ran')
subprocess.run(['touch', 'ran'])
__import__('os').system('touch ran')
flags = ['-O3'] + subprocess.check_output(['flags']).split()
setup(name='x', value=flags)
"""
    )
    first, second = reader.calls[-1].get("value")
    assert first == "-O3"
    assert isinstance(second, Unknown)
    assert second.reason == "subprocess.check_output(...)"
    assert not (tmp_path / "ran").exists()


def test_a_decision_on_something_unknown_is_reported(follow):
    reader = follow(
        """
version = subprocess.check_output(['nvcc', '-V'])
if version < '11':
    raise RuntimeError('too old')
if version > '12':
    setup(name='x')
"""
    )
    assert [c.get("name") for c in reader.calls] == ["x"]
    first, second = reader.doubts.values()
    assert "`if version < '11'` depends on subprocess.check_output(...); it is not taken" in first
    assert second.endswith("it is taken")


def test_files_of_the_project_are_read_and_no_others(follow, tmp_path):
    (tmp_path / "k.cu").write_text("source")
    (tmp_path.parent / "secret").write_text("x")
    assert value(follow, "open('k.cu').read()") == "source"
    assert value(follow, "Path('k.cu').read_text()") == "source"
    assert (
        follow("with open('k.cu') as f:\n    text = f.read()\nsetup(value=text)\n")
        .calls[0]
        .get("value")
        == "source"
    )
    for outside in ("open('../secret').read()", "Path('/etc/passwd').read_text()"):
        assert isinstance(value(follow, outside), Unknown)


@pytest.mark.parametrize(
    "outside",
    [
        "glob.glob('/etc/*')",
        "glob.glob('../*')",
        "glob.glob('csrc/*/../../../*')",
        "list(Path('..').glob('*'))",
        "list(Path('/etc').iterdir())",
        "list(Path('.').rglob('../*'))",
        "os.listdir('..')",
        "os.path.exists('/etc/passwd')",
        "osp.isfile('../secret')",
        "Path('/etc').is_dir()",
    ],
)
def test_what_lies_outside_of_the_project_is_not_looked_at(follow, outside):
    assert isinstance(value(follow, outside), Unknown)


def test_a_link_out_of_the_project_is_not_followed(follow, tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "of.cpp").touch()
    (tmp_path / "link").symlink_to(outside)
    assert value(follow, "glob.glob('link/*.cpp')") == []
    assert isinstance(value(follow, "os.listdir('link')"), Unknown)


@pytest.mark.parametrize("loop", ["while True: pass", "for i in range(1000000000): x = i"])
def test_a_program_without_an_end_ends(follow, loop):
    assert follow(f"setup(name='x')\n{loop}\n").calls[0].get("name") == "x"


def test_recursion_ends(follow):
    assert follow("def f():\n    return f()\nf()\nsetup(name='x')\n").doubts


@pytest.mark.parametrize(
    "expression",
    [
        "list(range(99999999))",
        "10**10**10",
        "1 << 10**12",
        "'a' * 1000000000000",
        "[0] * 10000 * 10000 * 10000",
        "'%1000000000000d' % 3",
        "'%*d' % (1000000000000, 3)",
        "'{:>1000000000000}'.format(3)",
        "'{:>{}}'.format(3, 1000000000000)",
        "('a' * 100000).replace('a', 'b' * 100000)",
        "('a' * 100000).join(['b'] * 100000)",
        "list(product(range(10000), range(10000), range(10000)))",
        "sum([list(range(10000))] * 10000, [])",
    ],
)
def test_a_hostile_program_does_not_fill_the_memory(follow, expression):
    assert isinstance(value(follow, expression), Unknown)


@pytest.mark.parametrize(
    ("start", "grow", "last"),
    [
        ("'a'", "x = x + x", "x"),
        ("[0]", "x = x + x", "x"),
        ("3", "x = x * x", "x"),
        ("[0]", "x += x", "x"),
        ("[0]", "x = [*x, *x]", "x"),
        ("'a'", "x = f'{x}{x}'", "x"),
        ("[0]", "x = [x, x]", "str(x)"),
        ("[0]", "x = [x, x]", "'%s' % x"),
        ("[0]", "x = {1: x, 2: x}", "'{a}'.format(a=x)"),
    ],
)
def test_what_doubles_in_a_loop_ends(follow, start, grow, last):
    reader = follow(f"x = {start}\nfor _ in range(21):\n    {grow}\nsetup(value={last})")
    assert isinstance(reader.calls[-1].get("value"), Unknown)


@pytest.mark.parametrize(
    "mistake",
    ["{[1]: 2}", "{[1]}", "{a for a in [[1]]}", "{a: 1 for a in [[1]]}", "[].extend()", "3 @ 4"],
)
def test_what_python_would_refuse_is_unknown(follow, mistake):
    assert isinstance(value(follow, mistake), Unknown)


def test_what_is_unknown_inside_of_a_list_is_named(follow):
    unknown = value(follow, "list(subprocess.check_output(['ls']))")
    assert unknown == Unknown("subprocess.check_output(...)", 9)
