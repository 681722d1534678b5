# SPDX-License-Identifier: Apache-2.0
"""Wheels of built variants."""
