"""A server on an early version of the Python SDK: `stdio`, or `sse` and a port."""

import sys

import anyio
from mcp.server.fastmcp import FastMCP

transport, *port = sys.argv[1:]
server = FastMCP("python", host="127.0.0.1", port=int(port[0]) if port else 0)


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def slow(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "slept"


server.run(transport)
