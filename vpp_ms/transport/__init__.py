"""Messages between ranks, and how ranks find each other.

`Channel` is what the executor needs: asynchronous FIFO routes, a header of opaque bytes and a
tensor each. `mindspore_p2p.P2PChannel` is the real one, `inproc.InProcessNetwork` joins the
threads of one process for tests. `Hub` and `Member` are the rendezvous: who is there, barriers
and small gathers, reports, and the notice of a rank's death.
"""

from vpp_ms.transport.channel import Channel, Delivery, LinkMeter, Receiver, Route
from vpp_ms.transport.hub import Failure, Hub
from vpp_ms.transport.inproc import InProcessNetwork
from vpp_ms.transport.rendezvous import LOST_EXIT_CODE, Member

__all__ = [
    "LOST_EXIT_CODE",
    "Channel",
    "Delivery",
    "Failure",
    "Hub",
    "InProcessNetwork",
    "LinkMeter",
    "Member",
    "Receiver",
    "Route",
]
