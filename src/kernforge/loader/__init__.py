# SPDX-License-Identifier: Apache-2.0
"""Find, verify and import kernels."""
