# SPDX-License-Identifier: Apache-2.0
"""What a process remembers lies in its session, and threads that share it do not meet."""

import ast
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.jit.device.test_plan import MACHINE

import kernforge.jit
from kernforge.errors import BuildError
from kernforge.jit import api, machine, project
from kernforge.jit import session as jit_session
from kernforge.jit.plan import ModuleRequest, ModuleUnit
from kernforge.jit.request import JitRequest
from kernforge.jit.session import CachedProject, JitSession
from kernforge.source.includes import closure
from kernforge.system.environment import Environment

PACKAGE = Path(kernforge.jit.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.BinOp)
STATE = {
    *("dict", "list", "set", "bytearray", "Counter", "defaultdict", "deque", "OrderedDict"),
    *("Lock", "RLock", "Condition", "Event", "Semaphore", "Thread", "ThreadPoolExecutor", "local"),
    *("cache", "lru_cache", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "ContextVar"),
    *("JitSession", "DeviceSession"),
}


def name_of(node):
    """The last part of the name that is called, or that decorates."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def state_of(tree):
    """Lines of a module that make something that can change and that all its functions share."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield ast.unparse(node)
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for node in (statement for body in bodies for statement in body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            calls = isinstance(node.value, ast.Call) and name_of(node.value) in STATE
            if calls or isinstance(node.value, DISPLAYS):
                yield ast.unparse(node)
        if isinstance(node, ast.FunctionDef):
            yield from (ast.unparse(d) for d in node.decorator_list if name_of(d) in STATE)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_has_state_of_its_own(module):
    """A process has one session, and that is all that it has."""
    allowed = ["PROCESS = JitSession()"] if module.name == "session.py" else []
    assert list(state_of(ast.parse(module.read_text()))) == allowed


@pytest.mark.parametrize(
    "text",
    [
        "known: dict[str, int] = {}",
        "known = dict()",
        "known = {} | {}",
        "lock = threading.Lock()",
        "@functools.lru_cache(maxsize=1)\ndef f(): ...",
        "class C:\n    known = []\n    @cache\n    def f(self): ...",
        "def f():\n    global x",
    ],
)
def test_state_of_a_module_is_recognised(text):
    assert list(state_of(ast.parse(text)))


def in_threads(*functions):
    """Call functions at the same time; their results, or errors, in order."""
    outcomes = [None] * len(functions)
    start = threading.Barrier(len(functions))

    def run(number):
        start.wait()
        try:
            outcomes[number] = functions[number]()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def module_request(name, source='TORCH_LIBRARY(ops, m) { m.def("f() -> ()"); }\n'):
    path = f"home/me/{name}.cpp"
    unit = ModuleUnit(path=path, texts={path: source}, closure=closure(path, {path: source}, ()))
    return ModuleRequest(name=name, units=(unit,))


def test_threads_that_write_one_op_namespace_get_two():
    session = JitSession(environment=Environment({}))
    both = threading.Barrier(2)

    def plan(name):
        with session.planned(module_request(name), MACHINE) as (_, module):
            both.wait()
        return module.namespaces["ops"]

    names = in_threads(lambda: plan("a"), lambda: plan("b"))
    assert "ops" in names
    assert len({*names}) == 2
    assert session.namespaces == {*names}


def test_an_op_namespace_is_free_again_when_its_module_fails():
    session = JitSession(environment=Environment({}))
    with pytest.raises(BuildError), session.planned(module_request("a"), MACHINE) as (_, module):
        raise BuildError("no")
    assert module.namespaces == {"ops": "ops"}
    assert session.namespaces == set()
    with session.planned(module_request("b"), MACHINE):
        with session.planned(module_request("c"), MACHINE) as (request, other):
            assert request.taken == {"ops"}
        session.release(other)
    assert session.namespaces == {"ops"}


def test_one_key_is_for_one_thread_and_others_go_on():
    session = JitSession(environment=Environment({}))
    inside = threading.Barrier(2)
    counts = {"now": 0, "most": 0}

    def same():
        with session.alone("module", "a"):
            counts["now"] += 1
            counts["most"] = max(counts["most"], counts["now"])
            counts["now"] -= 1

    def other(name):
        with session.alone("module", name):
            return inside.wait(60)

    in_threads(*[same] * 8)
    assert counts["most"] == 1
    assert sorted(in_threads(lambda: other("b"), lambda: other("c"))) == [0, 1]


def test_a_toolchain_is_looked_for_once(monkeypatch):
    session = JitSession(environment=Environment({"CXX": "g++"}))
    asked = []

    def find(_session, needs, _progress):
        asked.append(needs)
        return SimpleNamespace(needs=needs)

    monkeypatch.setattr(machine, "_find_toolchain", find)
    module = module_request("a")
    found = in_threads(*[lambda: machine.find_toolchain(session, module, None)] * 8)
    assert len(asked) == 1
    assert all(toolchain is found[0] for toolchain in found)
    other = ModuleRequest(name="b", units=module.units, with_cuda=True)
    assert machine.find_toolchain(session, other, None) is not found[0]


@pytest.fixture
def built(monkeypatch):
    """Modules are not compiled, but noted: name and text of each that would be."""
    log = SimpleNamespace(made=[], running=0, most=0, barrier=threading.Barrier(1))

    def make_module(session, request, _toolchain, _report, _user_files):
        with session.planned(request, MACHINE) as (_, module):
            log.running += 1
            log.most = max(log.most, log.running)
            (text,) = request.units[0].texts.values()
            log.made.append((request.name, text))
            number = len(log.made)
            log.barrier.wait(60)
            log.running -= 1
            if "wrong" in text:
                raise BuildError("wrong")
            return module, Path(f"/store/{number}.so")

    def load_module(_session, path, name, _namespaces, _torch, *, python):
        del python
        return api.LoadedModule(path=path, module=(name, path), namespaces={})

    monkeypatch.setattr(machine, "import_torch", lambda: SimpleNamespace(__file__="/t/torch.py"))
    monkeypatch.setattr(machine, "find_toolchain", lambda *_: None)
    monkeypatch.setattr(api.make, "make_module", make_module)
    monkeypatch.setattr(api, "load_module", load_module)
    monkeypatch.setattr(api.advice, "show_slow_hint", lambda *_: None)
    return log


def jit_request(name, text):
    text = f"PyInit_{name}() {text}"
    return JitRequest(name=name, sources=("/main.cpp",), texts=(("main.cpp", text),))


def test_threads_that_want_one_module_get_one(built):
    session = JitSession(environment=Environment({}))
    request = jit_request("a", "1")
    found = in_threads(*[lambda: api.load_request(session, request)] * 8)
    assert len({id(module) for module in found}) == 1
    assert len(built.made) == 1


def test_threads_that_want_one_name_get_what_each_asked_for(built):
    session = JitSession(environment=Environment({}))
    requests = [jit_request("a", str(number)) for number in range(4)]
    found = in_threads(*(lambda r=r: api.load_request(session, r) for r in requests))
    assert len({*found}) == 4
    assert built.most == 1  # one after the other
    assert [api.load_request(session, r) for r in requests] == found
    assert len(built.made) == 4


def test_threads_that_want_two_names_compile_at_the_same_time(built):
    session = JitSession(environment=Environment({}))
    names = ("a", "b", "c", "d")
    built.barrier = threading.Barrier(len(names))
    found = in_threads(*(lambda n=n: api.load_request(session, jit_request(n, "1")) for n in names))
    assert [name for name, _ in found] == list(names)


def test_a_thread_whose_module_fails_keeps_no_other_from_it(built):
    session = JitSession(environment=Environment({}))
    wrong, right = jit_request("a", "wrong"), jit_request("a", "1")
    first, second = in_threads(
        lambda: api.load_request(session, wrong), lambda: api.load_request(session, right)
    )
    assert isinstance(first, BuildError)
    assert second[0] == "a"


@pytest.fixture
def projects(tmp_path, monkeypatch):
    """Directories of two projects; what is loaded of them is the root, and noted."""
    loaded = []

    def load_anew(_session, root, *, verbose):
        assert not verbose
        loaded.append(root)
        threading.Event().wait(0.05)
        return CachedProject(stamps={}, listing={}, module=root, link=root)

    monkeypatch.setattr(project, "_load_anew", load_anew)
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "build.toml").write_text("")
    return SimpleNamespace(root=tmp_path, loaded=loaded)


def test_threads_that_want_one_project_build_it_once(projects):
    session = JitSession(environment=Environment({}))
    root = projects.root / "one"
    found = in_threads(*[lambda: project.load_project(session, root)] * 8)
    assert {*found} == {root}
    assert projects.loaded == [root]


def test_threads_that_want_two_projects_get_each_its_own(projects):
    session = JitSession(environment=Environment({}))
    roots = [projects.root / name for name in ("one", "two", "one/sub", "two/sub")]
    found = in_threads(*(lambda r=r: project.load_project(session, r) for r in roots))
    assert [root.name for root in found] == ["one", "two", "one", "two"]


def test_background_work_is_begun_once_and_waited_for():
    session = JitSession(environment=Environment({}))
    done = []

    def work():
        threading.Event().wait(0.05)
        done.append(1)

    in_threads(*[lambda: session.start_once("header", work)] * 4)
    in_threads(session.wait, session.wait)
    assert done == [1]


def test_a_process_has_one_session():
    assert isinstance(jit_session.PROCESS, JitSession)
    assert jit_session.PROCESS.device is not JitSession().device


def test_an_exit_that_waits_says_so(capsys):
    session = JitSession(environment=Environment({}))
    session.finish()
    assert capsys.readouterr().err == ""
    go_on = threading.Event()
    session.start_once("header", go_on.wait)
    waiting = threading.Thread(target=session.finish)
    waiting.start()
    while not (said := capsys.readouterr().err):
        time.sleep(0.01)
    assert "waiting until torch's headers are compiled ahead" in said
    assert waiting.is_alive()
    go_on.set()
    waiting.join()
    assert not session.background
