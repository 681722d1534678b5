# SPDX-License-Identifier: Apache-2.0
"""Compile while the user waits."""
