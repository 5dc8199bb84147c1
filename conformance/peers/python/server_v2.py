"""The interop fixture on version 2 of the Python SDK, which speaks both eras.

    python server_v2.py --transport stdio
    python server_v2.py --transport http --port 3000
"""

import logging
from typing import Annotated

import anyio
import mcp_types as types
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from fixture import COUNTER, offer, parse_arguments, serve_http

mcp = MCPServer("python-fixture", version="2", log_level="ERROR")
counters = offer(mcp, Context)

# Who asked for what in the older era, where there are sessions. The newer one has its bus.
subscribers = {}


class Name(BaseModel):
    name: str


async def ask_for_name(prompt: str = "What is your name?") -> Elicit[Name]:
    return Elicit(prompt, Name)


@mcp.tool()
async def ask(
    answer: Annotated[ElicitationResult[Name], Resolve(ask_for_name)], prompt: str = "What is your name?"
) -> str:
    """Asks the user for a name."""
    match answer.action:
        case "accept":
            return f"accepted:{answer.data.name}"
        case "decline":
            return "declined"
        case _:
            return "cancelled"


@mcp.tool()
async def touch(ctx: Context, uri: str = COUNTER) -> str:
    """Counts on, and says that a resource was updated."""
    counters.touched += 1
    await ctx.notify_resource_updated(uri)
    for session in subscribers.get(uri, {}).values():
        await session.send_resource_updated(uri)
    return str(counters.touched)


@mcp.tool()
async def fail(message: str) -> str:
    """Fails, as tools do."""
    raise ToolError(message)


@mcp.tool()
async def boom() -> str:
    """Fails, as protocols do."""
    raise MCPError(-32000, "boom, as asked", {"why": "fixture"})


async def subscribe(ctx, params):
    subscribers.setdefault(params.uri, {})[id(ctx.session)] = ctx.session
    return types.EmptyResult()


async def unsubscribe(ctx, params):
    subscribers.get(params.uri, {}).pop(id(ctx.session), None)
    return types.EmptyResult()


# The decorators know the newer era's subscriptions only.
lowlevel = mcp._lowlevel_server
lowlevel.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
lowlevel.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    arguments = parse_arguments()
    if arguments.transport == "stdio":
        mcp.run("stdio")
    else:
        anyio.run(serve_http, mcp.streamable_http_app(), arguments.port)
