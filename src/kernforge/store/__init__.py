# SPDX-License-Identifier: Apache-2.0
"""The content-addressed store on disk, shared by all processes of a user."""
