# SPDX-License-Identifier: Apache-2.0
"""Read machine code: ELF files, fat binaries, cubins.

pyelftools is imported here and nowhere else.
"""
