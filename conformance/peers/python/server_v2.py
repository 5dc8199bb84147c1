"""The interop fixture on version 2 of the Python SDK, which speaks both eras.

    python server_v2.py --transport stdio
    python server_v2.py --transport http --port 3000
    python server_v2.py --transport sse --port 3000
"""

import logging
import warnings
from typing import Annotated

import anyio
import mcp_types as types
from mcp.server.elicitation import ElicitationResult
from mcp.server.lowlevel import NotificationOptions
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from fixture import COUNTER, LEVELS, names_starting_with, offer, parse_arguments, serve_http

mcp = MCPServer("python-fixture", version="2", log_level="ERROR")

# Who asked for what in the older era, where there are sessions. The newer one has its bus.
subscribers = {}
sessions = []


def is_logged(ctx, level):
    """In the newer era the SDK filters by the level of the request; in the older one it leaves that to the server."""
    return LEVELS.index(level) >= LEVELS.index(state_of(ctx.session).get("log level", LEVELS[0]))


def state_of(session):
    """What is kept for a connection. The SDK makes a new session object for each request."""
    return session._connection.state


async def announce_tools(ctx):
    await ctx.notify_tools_changed()
    for session in list(sessions):
        try:
            # The stream of a client that has gone may have no reader.
            with anyio.move_on_after(20):
                await session.send_tool_list_changed()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            sessions.remove(session)


counters = offer(mcp, Context, is_logged, announce_tools)


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


async def ask_model(prompt: str) -> Sample:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    return Sample([message], max_tokens=100)


@mcp.tool()
async def sample(answer: Annotated[types.CreateMessageResult, Resolve(ask_model)], prompt: str) -> str:
    """Asks the client's model once."""
    return f"sampled:{answer.content.text}"


@mcp.completion()
async def complete(ref, argument, context):
    if isinstance(ref, types.PromptReference) and (ref.name, argument.name) == ("greet", "name"):
        return types.Completion(values=names_starting_with(argument.value))
    return None


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


async def set_log_level(ctx, params):
    state_of(ctx.session)["log level"] = params.level
    return types.EmptyResult()


async def record_session(ctx, call_next):
    """The SDK has no list of its sessions."""
    if ctx.method == "notifications/initialized":
        sessions.append(ctx.session)
    return await call_next(ctx)


# The decorators know the newer era's subscriptions only.
lowlevel = mcp._lowlevel_server
lowlevel.middleware.append(record_session)
lowlevel.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_log_level)
lowlevel.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
lowlevel.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)

capabilities_of = lowlevel.get_capabilities


def capabilities_with_changes(options=None, *arguments, **named):
    """In the older era the SDK has changes of lists, and declares none."""
    return capabilities_of(NotificationOptions(tools_changed=True), *arguments, **named)


lowlevel.get_capabilities = capabilities_with_changes


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    arguments = parse_arguments()
    if arguments.transport == "stdio":
        mcp.run("stdio")
    elif arguments.transport == "http":
        anyio.run(serve_http, mcp.streamable_http_app(), arguments.port)
    else:
        anyio.run(serve_http, mcp.sse_app(), arguments.port, "/sse")
