# SPDX-License-Identifier: Apache-2.0
"""Read the text of sources: includes, compiler messages, operators, public names. Pure functions."""
