# SPDX-License-Identifier: Apache-2.0
"""What can be said and proven of an artifact."""
