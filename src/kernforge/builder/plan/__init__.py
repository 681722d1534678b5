# SPDX-License-Identifier: Apache-2.0
"""A build as data. Pure."""
