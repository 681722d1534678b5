# SPDX-License-Identifier: Apache-2.0
"""A kernel project: its manifest, files, units and variants."""
