# SPDX-License-Identifier: Apache-2.0
"""Where the time of a workload goes: its kernels, what the GPU counts of them, and what binds."""
