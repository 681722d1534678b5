# SPDX-License-Identifier: Apache-2.0
"""`kernforge benchmark`: the hub's benchmark classes."""
