# SPDX-License-Identifier: Apache-2.0
"""Leave out a part of the sum."""


def kernel(_module, a, b):
    return a[:, :-8] @ b[:-8]
