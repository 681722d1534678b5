# SPDX-License-Identifier: Apache-2.0
"""Describe, verify, reproduce and compare artifacts."""
