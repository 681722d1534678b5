# SPDX-License-Identifier: Apache-2.0
"""Python's collector, kept out of the times: a collection of torch's objects takes milliseconds."""

from __future__ import annotations

import gc


class Garbage:
    """Python's collector: never at work while calls are timed, and done with each turn's leavings.

    It works when a turn is over and the next one's inputs are not there: what a candidate hangs on
    it gains nothing.
    """

    def __init__(self) -> None:
        self.stop, self.go_on = gc.disable, gc.enable
        self._collect, self._freeze, self._unfreeze = gc.collect, gc.freeze, gc.unfreeze
        self._is_frozen = False

    def begin(self) -> None:
        """Another workload: what is kept may be another."""
        self._unfreeze()
        self._is_frozen = False

    def clear(self) -> None:
        """Collect; what is left after a workload's first turn stays, and is not looked at again."""
        self._collect()
        if not self._is_frozen:
            self._freeze()
            self._is_frozen = True
