# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a machine."""
