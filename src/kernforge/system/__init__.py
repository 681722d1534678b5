# SPDX-License-Identifier: Apache-2.0
"""The doors.

Everything that touches the disk, other programs, the terminal or the process itself. Nothing here
knows what a kernel is.
"""
