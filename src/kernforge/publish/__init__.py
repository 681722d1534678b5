# SPDX-License-Identifier: Apache-2.0
"""Writing a version into a registry."""
