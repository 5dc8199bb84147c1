"""The interop fixture on version 1 of the Python SDK, which speaks the older era only.

    python server_v1.py --transport stdio
    python server_v1.py --transport http --port 3000
"""

import logging

import anyio
import mcp.types as types
from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl, BaseModel

from fixture import COUNTER, offer, parse_arguments, serve_http

mcp = FastMCP("python-fixture", log_level="ERROR")
counters = offer(mcp, Context)
subscribers = {}


class Name(BaseModel):
    name: str


@mcp.tool()
async def ask(ctx: Context, prompt: str = "What is your name?") -> str:
    """Asks the user for a name."""
    answer = await ctx.elicit(prompt, Name)
    match answer.action:
        case "accept":
            return f"accepted:{answer.data.name}"
        case "decline":
            return "declined"
        case _:
            return "cancelled"


@mcp.tool()
async def touch(uri: str = COUNTER) -> str:
    """Counts on, and says that a resource was updated."""
    counters.touched += 1
    for session in subscribers.get(uri, {}).values():
        await session.send_resource_updated(AnyUrl(uri))
    return str(counters.touched)


@mcp.tool()
async def fail(message: str) -> str:
    """Fails, as tools do."""
    raise ValueError(message)


@mcp.tool()
async def boom() -> str:
    """Fails, as protocols do; see below."""
    return ""


lowlevel = mcp._mcp_server
call_tool = lowlevel.request_handlers[types.CallToolRequest]


async def call_tool_or_boom(request):
    """What a tool raises here becomes its result, so that an error of the protocol is raised before."""
    if request.params.name == "boom":
        raise McpError(types.ErrorData(code=-32000, message="boom, as asked", data={"why": "fixture"}))
    return await call_tool(request)


lowlevel.request_handlers[types.CallToolRequest] = call_tool_or_boom


capabilities_of = lowlevel.get_capabilities


def capabilities_with_subscriptions(*arguments):
    """The SDK has subscriptions, and declares none."""
    capabilities = capabilities_of(*arguments)
    capabilities.resources.subscribe = True
    return capabilities


lowlevel.get_capabilities = capabilities_with_subscriptions


@lowlevel.subscribe_resource()
async def subscribe(uri: AnyUrl):
    session = lowlevel.request_context.session
    subscribers.setdefault(str(uri), {})[id(session)] = session


@lowlevel.unsubscribe_resource()
async def unsubscribe(uri: AnyUrl):
    subscribers.get(str(uri), {}).pop(id(lowlevel.request_context.session), None)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    arguments = parse_arguments()
    if arguments.transport == "stdio":
        mcp.run("stdio")
    else:
        anyio.run(serve_http, mcp.streamable_http_app(), arguments.port)
