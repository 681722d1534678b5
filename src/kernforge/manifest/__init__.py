# SPDX-License-Identifier: Apache-2.0
"""build.toml as a document."""
