# SPDX-License-Identifier: Apache-2.0
"""A module for each command, which is imported when the command runs."""
