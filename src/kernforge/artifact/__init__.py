# SPDX-License-Identifier: Apache-2.0
"""What one built variant is: its name, its document, its digest, where it lies."""
