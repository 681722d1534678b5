# SPDX-License-Identifier: Apache-2.0
"""Kernels in the place of layers of a model."""
