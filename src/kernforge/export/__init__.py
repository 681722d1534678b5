# SPDX-License-Identifier: Apache-2.0
"""A project in the formats of other tools."""
