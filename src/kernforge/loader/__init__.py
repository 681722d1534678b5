# SPDX-License-Identifier: Apache-2.0
"""From a repo id to an imported package."""
