# SPDX-License-Identifier: Apache-2.0
"""Reading machine code: ELF, fat binaries, cubins.

pyelftools is imported here and nowhere else.
"""
