# SPDX-License-Identifier: Apache-2.0
"""A setup.py project or a script with load_inline becomes a kernel project: ``kernforge adopt``."""
