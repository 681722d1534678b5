# SPDX-License-Identifier: Apache-2.0
"""The command line. argparse is imported here and nowhere else."""
