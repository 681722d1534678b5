# SPDX-License-Identifier: Apache-2.0
"""Parse, call, print. argparse is imported here alone."""
