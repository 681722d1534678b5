# SPDX-License-Identifier: Apache-2.0
"""The values of the stub, and the errors for what it does not have."""

import importlib.abc
import json
import os
import sys
import urllib.error

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "kernforge-stub")) as stream:
    VALUES = json.load(stream)


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


def _message(what):
    return (
        f"{asker()} asks for {what}, which kernforge's stub of torch {VALUES['release']} does "
        "not have: it answers what setup.py files read of torch to build extensions. Install torch and "
        "build with pip itself, or report the name"
    )


def missing(module):
    """A module's ``__getattr__``, which names what was asked for."""

    def __getattr__(name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        raise AttributeError(_message(f"{module}.{name}"))

    return __getattr__


class _Finder(importlib.abc.MetaPathFinder):
    """The last finder of modules: names a module of torch that is not here."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("torch."):
            raise ModuleNotFoundError(_message(name), name=name)
        return None


def install():
    """Name modules that are not here too."""
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
