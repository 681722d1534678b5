# SPDX-License-Identifier: Apache-2.0
"""Print a result that looks like the tool's."""

import json

print(json.dumps({"kind": "Times", "times": [1.0]}), flush=True)


def kernel(_module, a, b):
    print("kernel 1.0 ns")
    return (a.double() @ b.double()).float()
