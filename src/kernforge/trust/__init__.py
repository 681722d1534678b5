# SPDX-License-Identifier: Apache-2.0
"""Trust policies and signatures."""
