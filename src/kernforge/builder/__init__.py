# SPDX-License-Identifier: Apache-2.0
"""From a project to artifacts."""
