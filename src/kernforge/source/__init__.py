# SPDX-License-Identifier: Apache-2.0
"""Pure functions on the text of sources: includes, compiler messages, operators, public names."""
