# SPDX-License-Identifier: Apache-2.0
"""The marker of this project's own; the fixtures are those of kernforge's pytest plugin."""


def pytest_configure(config):
    config.addinivalue_line("markers", "native: starts a real compiler")
