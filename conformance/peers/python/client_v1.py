"""Checks a server with version 1 of the Python SDK, which speaks the older era only.

    python client_v1.py legacy http://127.0.0.1:3000/mcp
    python client_v1.py legacy interop-server --transport stdio
    python client_v1.py sse http://127.0.0.1:3000/mcp
"""

import logging
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
import mcp.types as types
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from checks import Refused, Reply, User, model_text, run


class Peer:
    def __init__(self, session, version, user, heard, tools_changed, log):
        self.session, self.version, self.user, self.heard = session, version, user, heard
        self.tools_changed, self.log = tools_changed, log

    async def list_tools(self):
        return [tool.name for tool in (await refusable(self.session.list_tools())).tools]

    async def call(self, tool, arguments, on_progress=None):
        # This version sends no notification when a task that waits for an answer is cancelled, so we do. The id is
        # the one that the SDK takes next.
        request_id = self.session._request_id
        try:
            result = await refusable(self.session.call_tool(tool, arguments, progress_callback=on_progress))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                params = types.CancelledNotificationParams(requestId=request_id, reason="let go of")
                notification = types.CancelledNotification(params=params)
                await self.session.send_notification(types.ClientNotification(notification))
            raise
        text = "".join(block.text for block in result.content)
        return Reply(text, bool(result.isError))

    async def read(self, uri):
        return (await refusable(self.session.read_resource(AnyUrl(uri)))).contents[0].text

    async def prompt(self, name, arguments):
        return (await refusable(self.session.get_prompt(name, arguments))).messages[0].content.text

    async def raw(self, method):
        request = types.Request[types.RequestParams, str](method=method, params=types.RequestParams())
        return await refusable(self.session.send_request(request, types.EmptyResult))

    @asynccontextmanager
    async def subscribe(self, uri):
        await self.session.subscribe_resource(AnyUrl(uri))
        yield self.heard.receive
        await self.session.unsubscribe_resource(AnyUrl(uri))


    @asynccontextmanager
    async def watch_tools(self):
        yield self.tools_changed.receive

    async def set_log_level(self, level):
        await refusable(self.session.set_logging_level(level))

    async def complete(self, prompt, argument, value):
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        result = await refusable(self.session.complete(reference, {"name": argument, "value": value}))
        return result.completion.values


async def refusable(answer):
    try:
        return await answer
    except McpError as error:
        raise Refused(error.error.code, error.error.message, error.error.data) from error


def connect(mode, target):
    if mode == "sse":
        transport = sse_client(target[0])
    elif target[0].startswith("http://"):
        transport = streamable_http_client(target[0])
    else:
        transport = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))

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
            if isinstance(message, types.ServerNotification):
                if isinstance(message.root, types.ResourceUpdatedNotification):
                    await tell.send(str(message.root.params.uri))
                elif isinstance(message.root, types.ToolListChangedNotification):
                    await tell_of_tools.send(None)

        async with transport as streams:
            async with ClientSession(
                *streams[:2],
                elicitation_callback=answer,
                sampling_callback=answer_as_model,
                logging_callback=record,
                message_handler=hear,
            ) as session:
                opening = await session.initialize()
                yield Peer(session, opening.protocolVersion, user, heard, tools_changed, log)

    return opened


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if sys.argv[1] not in ("legacy", "sse"):
        sys.exit("this version of the SDK speaks the older era only: the mode is `legacy` or `sse`")
    sys.exit(anyio.run(run, connect(sys.argv[1], sys.argv[2:])))
