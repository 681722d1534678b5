# SPDX-License-Identifier: Apache-2.0
"""A version that is a string and compares as a version, as torch's."""

from packaging.version import InvalidVersion, Version


def _version(other):
    if isinstance(other, Version):
        return other
    text = ".".join(map(str, other)) if isinstance(other, (tuple, list)) else str(other)
    return Version(text)


class TorchVersion(str):
    """``torch.__version__``."""

    def _compare(self, other, method):
        try:
            return getattr(Version(self), method)(_version(other))
        except InvalidVersion:
            return getattr(str(self), method)(other)

    def __gt__(self, other):
        return self._compare(other, "__gt__")

    def __lt__(self, other):
        return self._compare(other, "__lt__")

    def __ge__(self, other):
        return self._compare(other, "__ge__")

    def __le__(self, other):
        return self._compare(other, "__le__")

    def __eq__(self, other):
        return self._compare(other, "__eq__")

    __hash__ = str.__hash__

    @property
    def release(self):
        return Version(self).release

    @property
    def major(self):
        return Version(self).major

    @property
    def minor(self):
        return Version(self).minor

    @property
    def micro(self):
        return Version(self).micro
