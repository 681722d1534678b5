# SPDX-License-Identifier: Apache-2.0
"""Write a project in the formats of other tools."""
