# SPDX-License-Identifier: Apache-2.0
"""Honest times: judge and workers."""
