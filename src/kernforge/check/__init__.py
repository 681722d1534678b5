# SPDX-License-Identifier: Apache-2.0
"""Would an artifact break at a user?"""
