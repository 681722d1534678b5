# SPDX-License-Identifier: Apache-2.0
"""Make a kernel project of a setup.py project or a script with load_inline: ``kernforge adopt``."""
