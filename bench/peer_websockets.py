"""The minimum of spaces: each message is sent to every client with the same path, with the `broadcast` of `websockets`.

Nothing is checked, ordered, numbered or stored.  `python bench/peer_websockets.py --port PORT`
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve

rooms: defaultdict[str, set[ServerConnection]] = defaultdict(set)
"""The connections, by the path of their request."""


async def attend(connection: ServerConnection) -> None:
    assert connection.request is not None
    room = rooms[connection.request.path]
    room.add(connection)
    try:
        async for message in connection:
            broadcast(room, message)
    finally:
        room.discard(connection)


async def main(port: int) -> None:
    async with serve(attend, "127.0.0.1", port, compression=None, backlog=4096) as server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(main(parser.parse_args().port))
