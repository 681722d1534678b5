# SPDX-License-Identifier: Apache-2.0
"""One built variant: its name, its metadata, its digest, its directory."""
