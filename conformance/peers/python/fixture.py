"""The interop fixture's tools, resources and prompt, for the servers of both major versions of the Python SDK.

What the two do differently (asking, telling of changes, refusing) is in `server_v1.py` and `server_v2.py`.
"""

import argparse
import socket

import anyio
import uvicorn

COUNTER = "fixture://counter"
LEVELS = ["debug", "info", "warning", "error"]


class Counters:
    """What became of the calls of `slow`, and how often `touch` was called."""

    def __init__(self):
        self.touched = 0
        self.reset()

    def reset(self):
        self.started = self.finished = self.cancelled = 0


def offer(mcp, context_type, is_logged, announce_tools):
    """Adds to `mcp` all that needs nothing of one version of the SDK. Returns what it counts.

    `is_logged(ctx, level)` tells whether the caller asked for messages of this level, and `announce_tools(ctx)` tells
    the clients that the list of tools has changed.
    """
    counters = Counters()

    @mcp.tool()
    async def echo(text: str) -> str:
        """Says what it is told."""
        return text

    @mcp.tool()
    async def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @mcp.tool()
    async def slow(seconds: float) -> str:
        """Sleeps."""
        counters.started += 1
        try:
            await anyio.sleep(seconds)
        except anyio.get_cancelled_exc_class():
            counters.cancelled += 1
            raise
        counters.finished += 1
        return "slept"

    @mcp.tool()
    async def stats() -> dict[str, int]:
        """Tells how many calls of `slow` came how far."""
        active = counters.started - counters.finished - counters.cancelled
        return {
            "started": counters.started,
            "finished": counters.finished,
            "cancelled": counters.cancelled,
            "active": active,
        }

    # The SDK looks for the context by the annotation of a parameter, which is a different type in each version.
    async def progress(n: int, ctx) -> str:
        """Reports its progress."""
        for step in range(1, n + 1):
            await ctx.report_progress(step, n, f"step {step}")
        return f"{n} steps"

    progress.__annotations__["ctx"] = context_type
    mcp.tool()(progress)

    async def log(ctx) -> str:
        """Sends a log message at each of four levels."""
        for level in LEVELS:
            if is_logged(ctx, level):
                await ctx.log(level, f"at {level}", logger_name="fixture")
        return "logged"

    log.__annotations__["ctx"] = context_type
    mcp.tool()(log)

    async def extra() -> str:
        """A tool that `set_extra` adds and removes."""
        return "extra"

    async def set_extra(present: bool, ctx) -> str:
        """Adds or removes the tool `extra`, and announces the change of the list."""
        if present:
            mcp.add_tool(extra)
        else:
            mcp.remove_tool("extra")
        await announce_tools(ctx)
        return "ok"

    set_extra.__annotations__["ctx"] = context_type
    mcp.tool()(set_extra)

    @mcp.tool()
    async def reset() -> str:
        """Forgets the calls of `slow`."""
        counters.reset()
        return "ok"

    @mcp.resource(COUNTER, mime_type="text/plain")
    async def counter() -> str:
        return str(counters.touched)

    @mcp.resource("fixture://static", mime_type="text/plain")
    async def static() -> str:
        return "static"

    @mcp.resource("fixture://item/{id}", mime_type="text/plain")
    async def item(id: str) -> str:
        return f"item {id}"

    @mcp.prompt()
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    return counters


def names_starting_with(prefix):
    """The completions of the argument of `greet`."""
    return [name for name in ["Ada", "Alan", "Barbara"] if name.startswith(prefix)]


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio", "http", "sse"], required=True)
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


async def serve_http(app, port, path="/mcp"):
    """Serves `app` and says where, as soon as it can be reached."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(512)
    print(f"READY http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    config = uvicorn.Config(app, log_level="error")
    await uvicorn.Server(config).serve(sockets=[listener])
