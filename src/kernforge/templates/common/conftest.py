# SPDX-License-Identifier: __LICENSE__
# The fixtures `device` and `kernel`, and --sanitizer, also for `pytest` by itself.
pytest_plugins = ["kernforge.testing.plugin"]
