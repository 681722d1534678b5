# SPDX-License-Identifier: Apache-2.0
"""A read-only server for any registry: the protocol of the Hugging Face hub, and pages."""
