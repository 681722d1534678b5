# SPDX-License-Identifier: Apache-2.0
"""The way around torch.ops (kernforge/direct.h) is one for plain tensors, and the result is the same."""

from __future__ import annotations

import sys
import threading
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

quiet = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.fixture
def pair(device):
    torch.manual_seed(7)
    return tuple(torch.randn(4, 6, device=device) for _ in range(2))


class Subclass(torch.Tensor):
    seen: list[object] = []  # noqa: RUF012 - emptied by its test

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Functions(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_plain_tensors_and_parameters_take_it(kernel, pair):
    a, b = pair
    parameter = torch.nn.Parameter(a)
    assert torch.equal(kernel._direct(a, b), a + b)
    assert torch.equal(kernel._direct(parameter, b), a + b)
    assert kernel._direct(parameter, b).requires_grad
    assert torch.equal(kernel.vector_add(b=b, a=a), a + b)


def test_all_else_is_left_to_torch_ops(kernel, pair):
    a, b = pair
    for given in (
        (),
        (a,),
        (a, b, a),
        (a, 1.0),
        (None, b),
        ([1.0], b),
        (a, b.as_subclass(Subclass)),
    ):
        assert kernel._direct(*given) is NotImplemented
    with Functions():
        assert kernel._direct(a, b) is NotImplemented
    with torch.device("meta"):  # a mode too
        assert kernel._direct(a, b) is NotImplemented
        assert torch.equal(kernel.vector_add(a, b), a + b)


@pytest.mark.parametrize("wrong", [1.0, None, "text", [1.0]], ids=repr)
def test_other_types_are_refused_in_the_words_of_torch_ops(kernel, pair, wrong):
    with pytest.raises(Exception) as by_ops:  # noqa: PT011 - whichever it is
        kernel._vector_add(pair[0], wrong)
    with pytest.raises(type(by_ops.value)) as ours:
        kernel.vector_add(pair[0], wrong)
    assert str(ours.value) == str(by_ops.value)


@pytest.mark.parametrize(
    "change", [lambda t: t.half(), lambda t: t[:1], lambda t: t.int()], ids=["b", "shape", "dtype"]
)
def test_errors_of_the_op_are_the_same(kernel, pair, change):
    a, b = pair[0], change(pair[1])
    given = (b, b) if b.dtype == torch.int32 else (a, b)
    with pytest.raises(ValueError, match="vector_add: ") as by_ops:
        kernel._vector_add(*given)
    with pytest.raises(ValueError, match="vector_add: ") as ours:
        kernel._direct(*given)
    assert (type(ours.value), str(ours.value)) == (type(by_ops.value), str(by_ops.value))


def test_an_exception_of_python_below_it_arrives_as_it_is(kernel, pair):
    thrown = KeyError("mine")

    class Throws(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise thrown

    with Throws(), pytest.raises(KeyError) as caught:
        kernel._direct(*pair)
    assert caught.value is thrown


def test_subclasses_and_modes_see_the_op(kernel, pair):
    a, b = pair
    Subclass.seen.clear()
    got = kernel.vector_add(a.as_subclass(Subclass), b)
    assert type(got) is Subclass
    assert kernel._vector_add in Subclass.seen
    with Functions() as functions:
        kernel.vector_add(a, b)
    assert functions.seen == [kernel._vector_add]
    with Dispatches() as dispatches:
        assert torch.equal(kernel._direct(a, b), a + b)
    assert dispatches.seen[0] == kernel._vector_add


def test_fake_tensors(kernel, pair):
    with FakeTensorMode() as mode:
        a, b = (mode.from_tensor(t) for t in pair)
        got = kernel.vector_add(a, b)
    assert isinstance(got, FakeTensor)
    assert got.shape == pair[0].shape


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_function_transforms(kernel, pair):
    a, b = pair
    assert torch.equal(torch.func.vmap(kernel.vector_add)(a, b), a + b)
    assert torch.equal(torch.func.vmap(kernel.vector_add, (0, None))(a, b[0]), a + b[0])
    for call in (kernel._vector_add, kernel.vector_add):  # torch does not take autograd in C++ here
        with pytest.raises(RuntimeError, match="with functorch transforms"):
            torch.func.grad(lambda t, call=call: call(t, b).sum())(a)


def test_gradients_are_those_of_the_op(kernel, pair):
    a, b = (t.requires_grad_() for t in pair)
    direct, by_ops = kernel._direct(a, b), kernel._vector_add(a, b)
    assert direct.grad_fn.name() == by_ops.grad_fn.name()
    assert torch.equal(torch.autograd.grad(direct.sum(), b)[0], torch.ones_like(b))
    with torch.no_grad():
        assert not kernel._direct(a, b).requires_grad
    with torch.inference_mode():
        assert kernel._direct(a, b).is_inference()


@quiet
def test_compilers_see_the_op(kernel, pair):
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(kernel.vector_add, backend=keep, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(*pair), pair[0] + pair[1])
    assert len(graphs) == 1
    exported = torch.export.export(_Model(kernel), pair)
    traced = make_fx(kernel.vector_add)(*pair)
    for graph in (graphs[0], exported.graph_module, traced):
        assert kernel._vector_add in {node.target for node in graph.graph.nodes}
    assert torch.equal(exported.module()(*pair), pair[0] + pair[1])


class _Model(torch.nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, a, b):
        return self.kernel.vector_add(a, b)


def test_nothing_is_kept(kernel, pair):
    a, b = pair
    counts = [sys.getrefcount(one) for one in (a, b)]
    for _ in range(500):
        kernel._direct(a, b)
        kernel._direct(a, None)
        with pytest.raises(ValueError, match="shape"):
            kernel._direct(a, b[:1])
    assert [sys.getrefcount(one) for one in (a, b)] == counts
    result = kernel._direct(a, b)
    gone = weakref.ref(result)
    assert sys.getrefcount(result) == 2
    del result
    assert gone() is None


def test_threads(kernel, device):
    wrong = []

    def work(seed):
        source = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(1 << 12, generator=source).to(device) for _ in range(2))
        want = a + b
        wrong.extend(seed for _ in range(200) if not torch.equal(kernel.vector_add(a, b), want))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_run_meanwhile(kernel, pair):
    """A thread that waits in the op for another one would wait for ever if it kept the GIL."""
    inside, released = threading.Event(), threading.Event()

    class Waits(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            inside.set()
            assert released.wait(60)
            return func(*args, **(kwargs or {}))

    def call():
        with Waits():
            kernel._direct(*pair)

    thread = threading.Thread(target=call)
    thread.start()
    assert inside.wait(60)
    assert torch.equal(kernel._direct(*pair), pair[0] + pair[1])
    released.set()
    thread.join()
