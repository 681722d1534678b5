# SPDX-License-Identifier: Apache-2.0
"""The same graph on Dask. distributed is imported here alone."""
