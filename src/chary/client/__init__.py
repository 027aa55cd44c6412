"""A client of the decision service, `chary serve`: plain calls, and their twins for asyncio.

A call is sent again until it is answered, with the same bytes, for as long as its deadline allows: the
service answers a request that it has answered before with the same bytes, so nothing is decided or booked
twice. While the service is away the client plays the baseline's table, which it has kept, and reports these
steps later.

Importing it is light: it needs httpx, and neither NumPy nor Numba.
"""

from chary.client.clients import AsyncClient, Client
from chary.client.replies import Begun, Decided, Rejected, Unavailable
from chary.client.talk import Patience

__all__ = ["AsyncClient", "Begun", "Client", "Decided", "Patience", "Rejected", "Unavailable"]
