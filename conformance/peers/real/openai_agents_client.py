"""Checks our server with what the OpenAI Agents SDK has for MCP; no model is called."""

from contextlib import asynccontextmanager

from agents.mcp import MCPServerSse, MCPServerStdio, MCPServerStreamableHttp

from plain import main


class Peer:
    def __init__(self, server):
        self.server = server

    async def list_tools(self):
        return [tool.name for tool in await self.server.list_tools()]

    async def call(self, tool, arguments):
        return (await self.server.call_tool(tool, arguments)).content[0].text


@asynccontextmanager
async def connect(mode, target):
    if mode == "sse":
        server = MCPServerSse({"url": target[0]})
    elif target[0].startswith("http://"):
        server = MCPServerStreamableHttp({"url": target[0]})
    else:
        server = MCPServerStdio({"command": target[0], "args": target[1:]})
    async with server:
        yield Peer(server)


main(connect)
