"""Checks a server with version 2 of the Python SDK, which speaks both eras.

    python client_v2.py auto http://127.0.0.1:3000/mcp
    python client_v2.py legacy interop-server --transport stdio
"""

import logging
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError

from checks import Refused, Reply, User, run

MODES = {"auto": "auto", "2026": "2026-07-28", "legacy": "legacy"}


class Peer:
    def __init__(self, client, user, heard):
        self.client, self.user, self.heard = client, user, heard
        self.version = client.protocol_version

    async def list_tools(self):
        return [tool.name for tool in (await refusable(self.client.list_tools())).tools]

    async def call(self, tool, arguments, on_progress=None):
        result = await refusable(self.client.call_tool(tool, arguments, progress_callback=on_progress))
        text = "".join(block.text for block in result.content)
        return Reply(text, bool(result.is_error))

    async def read(self, uri):
        return (await refusable(self.client.read_resource(uri))).contents[0].text

    async def prompt(self, name, arguments):
        return (await refusable(self.client.get_prompt(name, arguments))).messages[0].content.text

    async def raw(self, method):
        request = types.Request[types.RequestParams, str](method=method, params=types.RequestParams())
        return await refusable(self.client.session.send_request(request, types.EmptyResult))

    @asynccontextmanager
    async def subscribe(self, uri):
        if self.version in types.version.MODERN_PROTOCOL_VERSIONS:
            async with self.client.listen(resource_subscriptions=[uri]) as subscription:

                async def next_event():
                    event = await anext(subscription)
                    return event.uri if isinstance(event, ResourceUpdated) else event

                yield next_event
        else:
            await self.client.subscribe_resource(uri)
            yield self.heard.receive
            await self.client.unsubscribe_resource(uri)


async def refusable(answer):
    try:
        return await answer
    except MCPError as error:
        raise Refused(error.code, error.message, error.data) from error


def connect(mode, target):
    @asynccontextmanager
    async def opened():
        user = User()
        tell, heard = anyio.create_memory_object_stream(100)

        async def answer(context, params):
            return types.ElicitResult(action=user.action, content=user.content)

        async def hear(message):
            if isinstance(message, types.ResourceUpdatedNotification):
                await tell.send(message.params.uri)

        if target[0].startswith("http://"):
            server = target[0]
        else:
            server = StdioServerParameters(command=target[0], args=target[1:])
        async with Client(server, mode=MODES[mode], elicitation_callback=answer, message_handler=hear) as client:
            yield Peer(client, user, heard)

    return opened


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.exit(anyio.run(run, connect(sys.argv[1], sys.argv[2:])))
