# SPDX-License-Identifier: Apache-2.0
"""Compilers and headers: locked, found, fetched."""
