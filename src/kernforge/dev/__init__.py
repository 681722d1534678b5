# SPDX-License-Identifier: Apache-2.0
"""``kernforge dev``: build, test and measure a project after every change."""
