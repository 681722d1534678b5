# SPDX-License-Identifier: Apache-2.0
"""`kernforge bench`: a project measured."""
