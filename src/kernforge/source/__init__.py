# SPDX-License-Identifier: Apache-2.0
"""What the text of a source says. Pure: text in, values out."""
