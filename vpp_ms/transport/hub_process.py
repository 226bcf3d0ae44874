"""A hub as a process of its own: `python -m vpp_ms.transport.hub_process FD NUM_RANKS RUN_KEY`.

Rank 0 starts it with a listening socket when no launcher hosts the hub. Not a thread of rank 0,
because rank 0 can hold its interpreter's lock for seconds, and can die.
"""

from __future__ import annotations

import socket
import sys
import time

from vpp_ms.transport.hub import JOIN_TIMEOUT_S, Hub

LAST_WORDS_S = 2.0  # for the members to read why they end
SCHEDULER_S = 60.0  # msrun's scheduler leaves 5 to 10 s behind the ranks


def main(arguments: list[str]) -> int:
    """Until all have left, the run has failed, or nobody came. Nobody owns it: reports end here."""
    descriptor, num_ranks, run_key = arguments
    server = socket.socket(fileno=int(descriptor))
    hub = Hub(server, int(num_ranks), run_key, lambda event: None)
    while not hub.ended.wait(JOIN_TIMEOUT_S) and hub.joined:
        pass
    if hub.failure is None:
        deadline_s = time.monotonic() + SCHEDULER_S
        while not hub.explained >= hub.joined and time.monotonic() < deadline_s:
            time.sleep(0.1)
    else:
        sys.stderr.write(f"{hub.failure.who}: {hub.failure.what}\n")
        time.sleep(LAST_WORDS_S)
    hub.stop()
    return 0 if hub.failure is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
