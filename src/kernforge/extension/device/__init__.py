# SPDX-License-Identifier: Apache-2.0
"""Edits of device code alone; used by the JIT, by `load(directory)` and by `dev`."""
