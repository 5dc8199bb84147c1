"""A server on FastMCP: `stdio`, or `http` or `sse` and a port."""

import asyncio
import sys

from fastmcp import FastMCP

# Two tools, and so two pages.
server = FastMCP("fastmcp", list_page_size=1)


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
