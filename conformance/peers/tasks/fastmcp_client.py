"""Checks the tasks of a server with the client of FastMCP.

    python fastmcp_client.py auto http://127.0.0.1:3000/mcp
    python fastmcp_client.py auto interop-server --transport stdio
"""

import logging
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import ToolTask, call_tool_task
from fastmcp_tasks.client import _send_get
from fastmcp_tasks.client_models import CancelTaskRequest, ClientCreateTaskResult, GetTaskRequest, UpdateTaskRequest
from mcp.shared.exceptions import MCPError

from checks import Refused, Reply, User, run
from task_checks import CHECKS

# Over HTTP it does not send `Mcp-Name` with these, which servers must require.
for request in (GetTaskRequest, UpdateTaskRequest, CancelTaskRequest):
    request.name_param = "taskId"


class Task:
    def __init__(self, handle):
        self.handle, self.id = handle, handle.task_id

    async def status(self):
        return (await self.handle.status()).status

    async def result(self):
        result = await self.handle.result()
        return reply_of(result)

    async def cancel(self):
        await self.handle.cancel()


class Peer:
    def __init__(self, client, user):
        self.client, self.user = client, user
        self.version = client.session.protocol_version

    async def call(self, tool, arguments):
        return reply_of(await self.client.call_tool(tool, arguments, raise_on_error=False))

    async def start(self, tool, arguments):
        return Task(await call_tool_task(self.client, tool, arguments, raise_on_error=False))

    async def attach(self, task_id):
        # It has no function for this; a handle is made of what `tasks/get` says.
        found = await self.get(task_id)
        created = ClientCreateTaskResult.model_validate(
            {
                "resultType": "task",
                "taskId": found.task_id,
                "status": found.status,
                "createdAt": found.created_at,
                "lastUpdatedAt": found.last_updated_at,
            }
        )
        return Task(ToolTask(self.client, "task_echo", created, raise_on_error=False))

    async def get(self, task_id):
        try:
            return await _send_get(self.client.session, task_id)
        except MCPError as error:
            raise Refused(error.code, error.message, error.data) from error


def reply_of(result):
    return Reply("".join(block.text for block in result.content), bool(result.is_error))


def connect(target):
    @asynccontextmanager
    async def opened():
        user = User()

        async def answer(message, response_type, params, context):
            return ElicitResult(action=user.action, content=user.content)

        over = target[0] if target[0].startswith("http://") else StdioTransport(target[0], target[1:])
        async with Client(over, elicitation_handler=answer) as client:
            yield Peer(client, user)

    return opened


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.exit(anyio.run(run, connect(sys.argv[2:]), CHECKS))
