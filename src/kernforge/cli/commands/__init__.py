# SPDX-License-Identifier: Apache-2.0
"""The commands: each module adds the arguments of some commands and runs them."""
