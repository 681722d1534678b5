# SPDX-License-Identifier: Apache-2.0
"""Return a view of an input."""


def kernel(_module, a, b):
    return a[:, : b.shape[1]]
