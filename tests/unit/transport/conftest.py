"""A hub in this process, members in threads or in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from vpp_ms.config.environ import RankEnv
from vpp_ms.errors import RankError
from vpp_ms.transport.hub import Hub, listen
from vpp_ms.transport.rendezvous import Member

RUN_KEY = "this run"


class Meeting:
    """One hub and those who join it; `lost[rank]` is what a member in this process was told."""

    def __init__(self, num_ranks: int) -> None:
        self.events: list[dict] = []
        server = next(s for s in map(_try_listen, range(15_500, 16_000)) if s is not None)
        self.port = server.getsockname()[1]
        self.num_ranks = num_ranks
        self.hub = Hub(server, num_ranks, RUN_KEY, self.events.append)
        self.lost: dict[int, RankError] = {}
        self.children: list[subprocess.Popen] = []

    def env(self, rank: int, **changes: object) -> RankEnv:
        values = {"rank": rank, "num_ranks": self.num_ranks, "run_key": RUN_KEY, **changes}
        return RankEnv(hub_host="127.0.0.1", hub_port=self.port, launcher_hosts_hub=True, **values)

    def join(self, rank: int, **changes: object) -> Member:
        def remember(error: RankError, waiting: bool) -> None:
            self.lost[rank] = error

        return Member.join(self.env(rank, **changes), timeout_s=5, on_lost=remember)

    def spawn(self, rank: int, body: str, *, before: str | None = None) -> subprocess.Popen:
        """A process that joins as `rank` and runs `body` with `member`, which says "ready".

        `before`: what it does before it joins; then nobody waits for it to be ready.
        """
        script = (
            "from vpp_ms.config.environ import RankEnv\n"
            "from vpp_ms.transport.rendezvous import Member\n"
            + textwrap.dedent(before or "")
            + f"member = Member.join({self.env(rank)!r})\n"
        ) + textwrap.dedent(body)
        child = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        assert child.stdout is not None
        assert before or child.stdout.readline() == "ready\n", child.communicate()[1]
        return child


@pytest.fixture
def meet() -> Iterator[Callable[[int], Meeting]]:
    meetings: list[Meeting] = []

    def open_meeting(num_ranks: int) -> Meeting:
        meetings.append(Meeting(num_ranks))
        return meetings[-1]

    yield open_meeting
    for meeting in meetings:
        meeting.hub.stop()
        for child in meeting.children:
            child.kill()
            child.communicate()


def _try_listen(port: int):
    from vpp_ms.errors import ConfigError

    try:
        return listen("127.0.0.1", port)
    except ConfigError:
        return None
