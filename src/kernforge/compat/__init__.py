# SPDX-License-Identifier: Apache-2.0
"""Answer ``import kernels``, so that a program written for the hub's client runs on kernforge.

::

    from kernforge import compat

    compat.install()

    import kernels   # kernforge answers

``kernforge run --as-kernels -- python app.py`` does the same for one command, and ``kernforge
run --write-wheel dist`` for an environment. Its names are the public ones of ``kernforge``, among
which are the client's.
"""

from __future__ import annotations

from kernforge import _lazy

TYPE_CHECKING = False  # as type checkers know it; typing itself takes most of ten milliseconds
if TYPE_CHECKING:
    from kernforge.compat.modules import install

__all__ = ["install"]

__getattr__, __dir__ = _lazy.attributes(__name__, {"modules": "install"}, __all__)
