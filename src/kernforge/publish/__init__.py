# SPDX-License-Identifier: Apache-2.0
"""Publish a version to a registry."""
