"""Checks our server with what Pydantic AI has for MCP; no model is called."""

import json
from contextlib import asynccontextmanager

from fastmcp.client.transports import SSETransport, StdioTransport
from pydantic_ai.mcp import MCPToolset

from plain import main


class Peer:
    def __init__(self, toolset):
        self.toolset = toolset

    async def list_tools(self):
        return [tool.name for tool in await self.toolset.list_tools()]

    async def call(self, tool, arguments):
        # What it hands on to a model: the structured content if there is one, else the text.
        result = await self.toolset.direct_call_tool(tool, arguments)
        return result if isinstance(result, str) else json.dumps(result)


@asynccontextmanager
async def connect(mode, target):
    if mode == "sse":
        client = SSETransport(target[0])
    elif target[0].startswith("http://"):
        client = target[0]
    else:
        client = StdioTransport(target[0], target[1:])
    async with MCPToolset(client) as toolset:
        yield Peer(toolset)


main(connect)
