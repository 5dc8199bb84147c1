"""Checks our server with the client of FastMCP."""

from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport

from plain import main


class Peer:
    def __init__(self, client):
        self.client = client

    async def list_tools(self):
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, tool, arguments):
        return (await self.client.call_tool(tool, arguments)).content[0].text


@asynccontextmanager
async def connect(mode, target):
    if mode == "sse":
        transport = SSETransport(target[0])
    elif target[0].startswith("http://"):
        transport = target[0]
    else:
        transport = StdioTransport(target[0], target[1:])
    async with Client(transport) as client:
        yield Peer(client)


main(connect)
