"""A server on FastMCP: `stdio`, or `http` or `sse` and a port."""

import asyncio
import sys

from fastmcp import FastMCP

server = FastMCP("fastmcp")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


transport, *port = sys.argv[1:]
options = {"host": "127.0.0.1", "port": int(port[0])} if port else {}
server.run(transport, show_banner=False, **options)
