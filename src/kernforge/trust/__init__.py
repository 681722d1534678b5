# SPDX-License-Identifier: Apache-2.0
"""Who may be loaded, and signatures."""
