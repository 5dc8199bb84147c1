"""Checks our server with an early version of the Python SDK."""

from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.sse import sse_client

from plain import main


class Peer:
    def __init__(self, session):
        self.session = session

    async def list_tools(self):
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, tool, arguments):
        return (await self.session.call_tool(tool, arguments)).content[0].text


@asynccontextmanager
async def connect(mode, target):
    if mode == "sse":
        transport = sse_client(target[0])
    else:
        transport = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with transport as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield Peer(session)


main(connect)
