# SPDX-License-Identifier: Apache-2.0
"""The values of the stub, the names that torch has, and the errors for what is not answered.

``names.json`` has the names of torch's modules. A name that nothing answers may be imported and
stored, as a setup.py does that imports its own package; its use is an error that names the line.
"""

import importlib.abc
import importlib.util
import json
import opcode
import os
import sys
import urllib.error

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "kernforge-stub")) as stream:
    VALUES = json.load(stream)
with open(os.path.join(HERE, "names.json")) as stream:
    _DOCUMENT = json.load(stream)
_NAMES = _DOCUMENT["modules"]
_CUDA = VALUES["cuda"] is not None
_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]

_CONSTANTS = {
    "torch": {"has_cuda": _CUDA, "has_cudnn": _CUDA, "has_mps": False, "has_mkldnn": True},
    "torch.cuda": {"has_magma": _CUDA},
    "torch.version": {
        "__version__": VALUES["release"],
        "cuda": VALUES["cuda"],
        "hip": None,
        "rocm": None,
        "xpu": None,
        "debug": False,
        "git_version": "unknown",
    },
}
# Results of functions. No group of processes is made, and no device but CUDA's is there.
_RESULTS = {
    "torch.get_num_threads": 1,
    # Releases of torch for Linux are built with OpenMP.
    "torch.__config__.parallel_info": "ATen/Parallel:\n\tat::get_num_threads() : 1\n"
    "ATen parallel backend: OpenMP\n",
    "torch.__config__.show": f"PyTorch {VALUES['release']} (kernforge's stub)\n",
    "torch.backends.cuda.is_built": _CUDA,
    "torch.backends.cudnn.is_available": _CUDA,
    "torch.backends.cudnn.version": 91002 if _CUDA else None,
    "torch.backends.mkl.is_available": True,
    "torch.backends.mps.is_available": False,
    "torch.backends.mps.is_built": False,
    "torch.backends.openmp.is_available": True,
    "torch.cuda.nccl.is_available": _CUDA,
    "torch.cuda.nccl.version": (2, 27, 5),  # of torch 2.9 and newer; older ones have 2.26 or 2.27
    "torch.distributed.is_available": True,
    "torch.distributed.is_initialized": False,
    "torch.xpu._is_compiled": False,
    "torch.xpu.device_count": 0,
    "torch.xpu.is_available": False,
}


def asker():
    """The line of the program that asked, as ``setup.py:12``."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not (name.startswith((HERE, "<frozen ")) or "importlib" in name):
            if name.startswith("<"):  # setuptools runs the text of a setup.py
                name = frame.f_globals.get("__file__") or name
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return "a program"


def _message(what, known=True):
    if not known and not any(part.startswith("_") for part in what.split(".")):
        return (
            f"{asker()} asks for {what}, which torch {_DOCUMENT['release']} does not have, nor does "
            f"kernforge's stub of torch {VALUES['release']}: look for the name in torch's "
            "documentation; an older torch may have it"
        )
    return (
        f"{asker()} asks for {what}, which kernforge's stub of torch {VALUES['release']} does not "
        "have: it answers what builds extensions, and computes nothing. Take it out of what setup.py "
        "runs; or install torch and build with `pip install --no-build-isolation .`"
    )


class _Unanswered:
    """A name of torch that may be stored and be a base class; its use is an error."""

    def __init__(self, what):
        self._what = what

    def __repr__(self):
        return self._what

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unanswered(f"{self._what}.{name}")

    def __call__(self, *args, **kwargs):
        raise RuntimeError(_message(self._what))

    def __bool__(self):
        raise RuntimeError(_message(self._what))

    def __instancecheck__(self, value):
        return False

    def __mro_entries__(self, bases):
        return ()


def missing(module, **found):
    """A module's ``__getattr__``: answers for what torch has, errors for the rest.

    Args:
        found: functions that give a value when it is asked for.
    """
    listed = _NAMES.get(module)
    names = set(listed["names"].split()) if listed else ()
    constants = {**(listed["constants"] if listed else {}), **_CONSTANTS.get(module, {})}

    def __getattr__(name):
        what = f"{module}.{name}"
        if name in found:
            return found[name]()
        if name in constants:
            return constants[name]
        if name.startswith("__") and name.endswith("__") and what not in _NAMES:
            raise AttributeError(name)
        if what in _RESULTS:
            return lambda *args, **kwargs: _RESULTS[what]
        if _is_module(what):
            return importlib.import_module(what)
        if listed is None or name in names:
            return _Unanswered(what)
        message = _message(what, known=False)
        frame = sys._getframe(1)
        if frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM:  # which hides the message
            raise ImportError(message, name=module)
        raise AttributeError(message)

    return __getattr__


def _is_module(name):
    """Whether torch has a module; one whose names are not listed may have any."""
    parent, _, last = name.rpartition(".")
    if parent in _NAMES:
        return last in _NAMES[parent]["modules"].split()
    return parent.startswith("torch.") and _is_module(parent)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder of modules: makes those of torch that have no file here."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("torch."):
            return None
        if not _is_module(name):
            raise ModuleNotFoundError(_message(name, known=False), name=name)
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def exec_module(self, module):
        module.__getattr__ = missing(module.__name__)
        module.__path__ = [os.path.join(HERE, *module.__name__.split(".")[1:])]


def install():
    """Make the modules that have no file here."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def refusing(urlretrieve):
    """``urlretrieve`` that fetches no wheel: the flash-attn family looks for a prebuilt one first."""

    def retrieve(url, *args, **kwargs):
        if str(url).endswith(".whl"):
            print(f"kernforge builds this wheel and does not fetch {url}", file=sys.stderr)
            raise urllib.error.HTTPError(url, 404, "kernforge builds it", None, None)
        return urlretrieve(url, *args, **kwargs)

    return retrieve
