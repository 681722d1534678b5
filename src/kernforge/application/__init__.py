# SPDX-License-Identifier: Apache-2.0
"""The side of an application that uses kernels: requirements, lock, download."""
