"""Which core each rank of a host is pinned to: `python -m vpp_ms.engine.cores NUM_RANKS`."""

from __future__ import annotations

import json
import os
import sys


def core_map(num_ranks: int) -> str:
    """msrun's --bind_core: rank r on the r-th core this process may use, round robin."""
    cores = sorted(os.sched_getaffinity(0))
    return json.dumps({f"device{r}": [str(cores[r % len(cores)])] for r in range(num_ranks)})


if __name__ == "__main__":
    sys.stdout.write(core_map(int(sys.argv[1])) + "\n")
