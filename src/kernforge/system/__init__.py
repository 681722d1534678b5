# SPDX-License-Identifier: Apache-2.0
"""Access to the disk, to other programs, to the terminal and to the process itself.

Nothing in this package depends on what a kernel is.
"""
