# SPDX-License-Identifier: Apache-2.0
"""``python -m kernforge``."""

from kernforge.cli import main

main()
