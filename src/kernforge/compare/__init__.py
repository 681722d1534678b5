# SPDX-License-Identifier: Apache-2.0
"""The tensors of a check and their comparison with a reference, of tests and of benchmarks."""
