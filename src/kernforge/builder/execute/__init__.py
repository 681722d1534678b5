# SPDX-License-Identifier: Apache-2.0
"""Running a graph of actions on one machine."""
