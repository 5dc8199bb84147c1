"""The interop fixture on version 1 of the Python SDK, which speaks the older era only.

    python server_v1.py --transport stdio
    python server_v1.py --transport http --port 3000
    python server_v1.py --transport sse --port 3000
"""

import logging
from weakref import WeakKeyDictionary, WeakSet

import anyio
import mcp.types as types
from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl, BaseModel

from fixture import COUNTER, LEVELS, names_starting_with, offer, parse_arguments, serve_http

mcp = FastMCP("python-fixture", log_level="ERROR")
subscribers = {}
sessions = WeakSet()
# The least level that each session asked for.
log_levels = WeakKeyDictionary()


def is_logged(ctx, level):
    """The SDK sends messages of every level."""
    return LEVELS.index(level) >= LEVELS.index(log_levels.get(ctx.session, LEVELS[0]))


async def announce_tools(ctx):
    """The SDK announces to one session at a time, and not by itself."""
    for session in list(sessions):
        try:
            # The stream of a client that has gone may have no reader.
            with anyio.move_on_after(20):
                await session.send_tool_list_changed()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            sessions.discard(session)


counters = offer(mcp, Context, is_logged, announce_tools)


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
async def sample(prompt: str, ctx: Context) -> str:
    """Asks the client's model once."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    answer = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
    return f"sampled:{answer.content.text}"


@mcp.completion()
async def complete(ref, argument, context):
    if isinstance(ref, types.PromptReference) and (ref.name, argument.name) == ("greet", "name"):
        return types.Completion(values=names_starting_with(argument.value))
    return None


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


def capabilities_with_changes(*arguments):
    """The SDK has subscriptions and changes of lists, and declares none."""
    capabilities = capabilities_of(*arguments)
    capabilities.resources.subscribe = True
    capabilities.tools.listChanged = True
    return capabilities


lowlevel.get_capabilities = capabilities_with_changes


handle_message = lowlevel._handle_message


async def handle_message_of_known_session(message, session, *arguments):
    """The SDK has no list of its sessions."""
    sessions.add(session)
    await handle_message(message, session, *arguments)


lowlevel._handle_message = handle_message_of_known_session


@lowlevel.set_logging_level()
async def set_log_level(level: types.LoggingLevel):
    log_levels[lowlevel.request_context.session] = level


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
    elif arguments.transport == "http":
        anyio.run(serve_http, mcp.streamable_http_app(), arguments.port)
    else:
        anyio.run(serve_http, mcp.sse_app(), arguments.port, "/sse")
