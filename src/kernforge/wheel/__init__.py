# SPDX-License-Identifier: Apache-2.0
"""Make wheels of built variants."""
