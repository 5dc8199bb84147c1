"""Checks a server with version 2 of the Python SDK, which speaks both eras.

    python client_v2.py auto http://127.0.0.1:3000/mcp
    python client_v2.py legacy interop-server --transport stdio
    python client_v2.py sse http://127.0.0.1:3000/mcp
"""

import logging
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError

from checks import Refused, Reply, User, model_text, run

MODES = {"auto": "auto", "2026": "2026-07-28", "legacy": "legacy", "sse": "legacy"}


class Peer:
    def __init__(self, client, user, heard, tools_changed, log):
        self.client, self.user, self.heard = client, user, heard
        self.tools_changed, self.log = tools_changed, log
        self.version = client.protocol_version
        self.is_modern = self.version in types.version.MODERN_PROTOCOL_VERSIONS
        # What each call carries in the newer era, which has no request to set a level.
        self.meta = None

    async def list_tools(self):
        return [tool.name for tool in (await refusable(self.client.list_tools())).tools]

    async def call(self, tool, arguments, on_progress=None):
        calling = self.client.call_tool(tool, arguments, progress_callback=on_progress, meta=self.meta)
        result = await refusable(calling)
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
        if self.is_modern:
            async with self.client.listen(resource_subscriptions=[uri]) as subscription:

                async def next_event():
                    event = await anext(subscription)
                    return event.uri if isinstance(event, ResourceUpdated) else event

                yield next_event
        else:
            await self.client.subscribe_resource(uri)
            yield self.heard.receive
            await self.client.unsubscribe_resource(uri)


    @asynccontextmanager
    async def watch_tools(self):
        if self.is_modern:
            async with self.client.listen(tools_list_changed=True) as subscription:

                async def next_event():
                    event = await anext(subscription)
                    assert isinstance(event, ToolsListChanged), event

                yield next_event
        else:
            yield self.tools_changed.receive

    async def set_log_level(self, level):
        if self.is_modern:
            self.meta = {types.LOG_LEVEL_META_KEY: level}
        else:
            await refusable(self.client.set_logging_level(level))

    async def complete(self, prompt, argument, value):
        reference = types.PromptReference(name=prompt)
        result = await refusable(self.client.complete(reference, {"name": argument, "value": value}))
        return result.completion.values


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
        tell_of_tools, tools_changed = anyio.create_memory_object_stream(100)
        log = []

        async def answer(context, params):
            return types.ElicitResult(action=user.action, content=user.content)

        async def answer_as_model(context, params):
            text = model_text(params.messages[0].content.text)
            content = types.TextContent(type="text", text=text)
            return types.CreateMessageResult(role="assistant", content=content, model="scripted")

        async def record(params):
            log.append((params.level, params.logger, params.data))

        async def hear(message):
            if isinstance(message, types.ResourceUpdatedNotification):
                await tell.send(message.params.uri)
            elif isinstance(message, types.ToolListChangedNotification):
                await tell_of_tools.send(None)

        if mode == "sse":
            server = sse_client(target[0])
        elif target[0].startswith("http://"):
            server = target[0]
        else:
            server = StdioServerParameters(command=target[0], args=target[1:])
        async with Client(
            server,
            mode=MODES[mode],
            elicitation_callback=answer,
            sampling_callback=answer_as_model,
            logging_callback=record,
            message_handler=hear,
        ) as client:
            yield Peer(client, user, heard, tools_changed, log)

    return opened


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.exit(anyio.run(run, connect(sys.argv[1], sys.argv[2:])))
