# SPDX-License-Identifier: Apache-2.0
"""Find problems of a machine."""
