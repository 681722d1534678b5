# SPDX-License-Identifier: Apache-2.0
"""Layers against the hub's own client: which kernel is chosen, which forward runs, which error."""

import random
from types import MethodType

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("kernels")

from kernels.layer import layer as their_layer, repos as their_repos  # noqa: E402
from torch import nn  # noqa: E402 - skipped without torch

import kernels as theirs  # noqa: E402
import kernforge as ours  # noqa: E402

DEVICES = ("cpu", "cuda", "rocm", "mps", "npu", "xpu", "neuron", "tpu")
MODES = (
    ("INFERENCE",),
    ("TRAINING",),
    ("INFERENCE", "TORCH_COMPILE"),
    ("TRAINING", "TORCH_COMPILE"),
)
FALLBACKS = ("NONE", "NO_LAYER", "NO_DEVICE", "NO_COMPATIBLE_PROPERTIES", "NO_COMPATIBLE_MODE")
FALLBACKS += ("CANNOT_LOAD", "DEFAULT", "ALL")


class Fixed:
    """A repository that is at hand; both sides take any object that loads."""

    def __init__(self, name, layer):
        self.name, self.layer = name, layer

    def load(self):
        if isinstance(self.layer, Exception):
            raise self.layer
        return self.layer

    def __repr__(self):
        return self.name


class Plain(nn.Module):
    def forward(self, x):
        return x + 1


class Compiles(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        return x + 2


class NoBackward(nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(self, x):
        return x + 3


class Constructed(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x


class Stateful(nn.Module):
    scale = 2

    def forward(self, x):
        return x


class TwoArguments(nn.Module):
    def forward(self, x, y):
        return x


class KeywordOnly(nn.Module):
    def forward(self, *, x):
        return x


class NoLayer:
    def forward(self, x):
        return x


LAYERS = (Plain, Compiles, NoBackward, Constructed, Stateful, TwoArguments, KeywordOnly, NoLayer)
USUAL = (Plain, Compiles, NoBackward, FileNotFoundError("no build"))


def mode(side, names):
    result = getattr(side.Mode, names[0])
    for name in names[1:]:
        result |= getattr(side.Mode, name)
    return result


def generated(rng):
    """A mapping as data: layer name -> [(device, range or None, repo or {mode names: repo})]."""
    mapping, serial = {}, 0
    for layer_name in rng.sample(("A", "B", "C"), rng.randint(0, 3)):
        rows = []
        ranges = [(low, low + width) for low in (70, 80, 89, 90) for width in (0, 9, 19, 40)]
        rng.shuffle(ranges)
        widths = set()
        for _ in range(rng.randint(0, 4)):
            device = rng.choice(DEVICES[:3]) if rng.random() < 0.8 else rng.choice(DEVICES)
            limits = None
            # Of equally narrow ranges theirs takes whichever lies lower in memory, and of a range
            # that is registered twice it may keep the old: neither can be compared.
            if device in {"cuda", "rocm"} and rng.random() < 0.7:
                low, high = ranges.pop()
                if high - low in widths:
                    continue
                widths.add(high - low)
                limits = (low, high)
            elif any(d == device and r is None for d, r, _ in rows) and device in {"cuda", "rocm"}:
                continue
            serial += 1
            wanted = [("FALLBACK",), *MODES]
            chosen = rng.sample(wanted, rng.randint(0, 4)) if rng.random() < 0.7 else None
            pool = LAYERS if rng.random() < 0.1 else USUAL
            tag = f"{layer_name}{serial}"
            value = (
                Fixed(tag, rng.choice(pool))
                if chosen is None
                else {names: Fixed(f"{tag}{names}", rng.choice(pool)) for names in chosen}
            )
            rows.append((device, limits, value))
        mapping[layer_name] = rows
    return mapping


def spelled(side, mapping):
    """A generated mapping in a side's own types."""
    kinds = {"cuda": side.CUDAProperties, "rocm": side.ROCMProperties}
    result = {}
    for layer_name, rows in mapping.items():
        devices = result.setdefault(layer_name, {})
        for device, limits, value in rows:
            key = side.Device(device, kinds[device](*limits)) if limits else device
            devices[key] = (
                {mode(side, names): repo for names, repo in value.items()}
                if isinstance(value, dict)
                else value
            )
    return result


def model():
    """Three marked layers and one that is not, with classes that the cases before did not touch."""

    class Base(nn.Module):
        def forward(self, x):
            return x

    marked = [ours.use_kernel_forward_from_hub(n)(type(n, (Base,), {})) for n in ("A", "B", "C")]
    return nn.Sequential(*(cls() for cls in marked), nn.Linear(2, 2))


def forwards(network):
    """What each layer runs: the kernel's forward, or None for its own."""
    result = []
    for module in network:
        forward = module.forward
        assert isinstance(forward, MethodType)
        assert forward.__self__ is module
        own = forward.__func__ is type(module).forward
        result.append(None if own else forward.__func__)
    return result


def kernelized(side, mapping, asked, device, fallback):
    network = model()
    with side.use_kernel_mapping(spelled(side, mapping), inherit_mapping=False):
        try:
            side.kernelize(
                network,
                mode=mode(side, asked),
                device=device,
                use_fallback=getattr(side.KernelizeFallback, fallback),
            )
        except (ValueError, TypeError, FileNotFoundError) as error:
            kinds = (FileNotFoundError, ValueError, TypeError)
            return next(kind for kind in kinds if isinstance(error, kind))
    return forwards(network)


@pytest.fixture
def capability(monkeypatch):
    """Both sides are told the same compute capability, as they would by a GPU."""

    def put(major, minor):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (major, minor))
        their_repos._find_capability.cache_clear()

    yield put
    their_repos._find_capability.cache_clear()


@pytest.mark.filterwarnings("ignore")
def test_the_same_kernels_stand_in_and_the_same_cases_are_errors(capability, monkeypatch):
    rng = random.Random(20)
    seen = set()
    for _ in range(4000):
        capability(*rng.choice(((7, 0), (8, 0), (8, 9), (9, 0), (10, 0))))
        mapping = generated(rng)
        case = (rng.choice(MODES), rng.choice(DEVICES[:3]), rng.choice(FALLBACKS))
        # Theirs holds a loaded layer against the first class only.
        monkeypatch.setattr(their_layer, "_CACHED_LAYER", {})
        expected = kernelized(theirs, mapping, *case)
        assert kernelized(ours, mapping, *case) == expected, (mapping, case)
        seen |= set(expected) if isinstance(expected, list) else {expected}
    assert seen > {None, Plain.forward, Compiles.forward, NoBackward.forward, ValueError, TypeError}
    assert FileNotFoundError in seen


def raised(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return type(error), str(error)
    return None


CALLS = {
    "training and inference": lambda k: k.Mode.TRAINING | k.Mode.INFERENCE,
    "fallback and more": lambda k: k.Mode.FALLBACK | k.Mode.TRAINING,
    "fallback for a model": lambda k: k.kernelize(model(), mode=k.Mode.FALLBACK, device="cpu"),
    "compile alone": lambda k: k.kernelize(model(), mode=k.Mode.TORCH_COMPILE, device="cpu"),
    "unknown device": lambda k: k.kernelize(model(), mode=k.Mode.INFERENCE, device="gpu"),
    "numbered device": lambda k: k.kernelize(model(), mode=k.Mode.INFERENCE, device="cuda:0"),
    "no parameters": lambda k: k.kernelize(nn.ReLU(), mode=k.Mode.INFERENCE),
    "unknown device in a mapping": lambda k: k.register_kernel_mapping({"A": {"gpu": None}}),
    "properties of others": lambda k: k.Device("rocm", k.CUDAProperties(70, 80)),
    "properties without a GPU": lambda k: k.Device("cpu", k.ROCMProperties(70, 80)),
    "neither version nor revision": lambda k: k.LayerRepository("a/b", layer_name="C"),
    "version and revision": lambda k: k.LayerRepository(
        "a/b", layer_name="C", version=1, revision="main"
    ),
    "decorated number": lambda k: k.use_kernel_forward_from_hub("A")(3),
    "undecorated function": lambda k: k.use_kernelized_func(len)(nn.ReLU),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_errors_say_the_same(call):
    (their_kind, their_text), (our_kind, our_text) = (
        raised(lambda: call(theirs)),
        raised(lambda: call(ours)),
    )
    assert issubclass(our_kind, their_kind)
    assert our_text.splitlines()[0] == their_text


def test_flags_are_the_same():
    for name in ("Mode", "KernelizeFallback"):
        our, their = getattr(ours, name), getattr(theirs, name)
        assert {k: v.value for k, v in our.__members__.items()} == {
            k: v.value for k, v in their.__members__.items()
        }


def test_models_that_either_marked_are_kernelized_by_both():
    mapping = {"A": {"cpu": Fixed("x", Plain)}}
    for marking in (theirs, ours):

        @marking.use_kernel_forward_from_hub("A")
        def function(x):
            return x

        caller = marking.use_kernelized_func(function)(type("Caller", (nn.Module,), {}))
        for side in (theirs, ours):
            with side.use_kernel_mapping(mapping):
                side.kernelize(caller(), mode=side.Mode.INFERENCE, device="cpu")
            assert function(1) == 2
            with side.use_kernel_mapping({}, inherit_mapping=False):
                side.kernelize(caller(), mode=side.Mode.INFERENCE, device="cpu")
            assert function(1) == 1
