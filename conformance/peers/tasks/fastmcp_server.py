"""The tasks fixture on FastMCP, whose tasks run in a worker of the same process.

    python fastmcp_server.py --transport stdio
    python fastmcp_server.py --transport http --port 3000
"""

import logging
from datetime import timedelta

import anyio
import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError

from fixture import parse_arguments, serve_http

server = FastMCP("fastmcp-tasks")
server.add_extension(TasksExtension(url="memory://", minimum_check_interval=timedelta(milliseconds=10)))
# Our client polls at this interval, because this server does not notify.
task = TaskConfig(mode="optional", poll_interval=timedelta(milliseconds=50))

stats = {"started": 0, "finished": 0, "cancelled": 0}


@server.tool(task=task)
async def task_echo(text: str) -> str:
    return text


@server.tool(task=task)
async def task_slow(seconds: float) -> str:
    stats["started"] += 1
    try:
        await anyio.sleep(seconds)
    except BaseException:
        stats["cancelled"] += 1
        raise
    stats["finished"] += 1
    return "slept"


@server.tool
async def task_stats() -> dict[str, int]:
    return stats


@server.tool(task=task)
async def task_ask(ctx: Context) -> str | types.InputRequiredResult:
    # A task cannot wait for an answer here: it ends, and starts again with the answers.
    answer = (ctx.input_responses or {}).get("name")
    if answer is None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        params = types.ElicitRequestFormParams(message="What is your name?", requested_schema=schema)
        return types.InputRequiredResult(input_requests={"name": types.ElicitRequest(params=params)})
    match answer.action:
        case "accept":
            return f"accepted:{answer.content['name']}"
        case "decline":
            return "declined"
        case _:
            return "cancelled"


@server.tool(task=task)
async def task_fail(message: str) -> str:
    raise ToolError(message)


@server.tool(task=task)
async def task_boom() -> str:
    raise MCPError(-32000, "boom, as asked", {"why": "fixture"})


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    arguments = parse_arguments()
    if arguments.transport == "stdio":
        server.run("stdio", show_banner=False)
    else:
        anyio.run(serve_http, server.http_app(path="/mcp"), arguments.port)
