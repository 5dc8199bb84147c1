"""What is checked of the tasks of a server by a Python client.

A client gives an object with these members: `version`, `user`, `start`, which makes a call and returns a task with
`id`, `status`, `result` and `cancel`, `attach`, which does so for an id, `call`, which makes a call and waits for its
task unnoticed, and `get`, which asks for a task by its id.
"""

import json

import anyio

from checks import refusal


async def call(peer):
    for text in ["plain", "", "日本語 🪢"]:
        reply = await peer.call("task_echo", {"text": text})
        assert (reply.text, reply.is_error) == (text, False), reply
    reply = await peer.call("task_stats", {})
    assert "started" in reply.text, reply


async def attach(peer):
    task = await peer.start("task_echo", {"text": "taken up"})
    assert task.id, "a task without an id"
    again = await peer.attach(task.id)
    assert (await again.result()).text == "taken up"
    assert await again.status() == "completed"
    # Its result stays readable.
    assert (await (await peer.attach(task.id)).result()).text == "taken up"


async def ask(peer):
    answers = [("accept", {"name": "Ada"}, "accepted:Ada"), ("decline", None, "declined"), ("cancel", None, "cancelled")]
    for action, content, expected in answers:
        peer.user.action, peer.user.content = action, content
        reply = await peer.call("task_ask", {})
        assert reply.text == expected, f"`{reply.text}` instead of `{expected}`"
    task = await peer.start("task_ask", {})
    while await task.status() != "input_required":
        await anyio.sleep(0.02)
    peer.user.action, peer.user.content = "accept", {"name": "Grace"}
    assert (await task.result()).text == "accepted:Grace"


async def errors(peer):
    failed = await peer.start("task_fail", {"message": "as asked"})
    reply = await failed.result()
    assert reply.is_error and "as asked" in reply.text, reply
    assert await failed.status() == "completed"
    boom = await peer.start("task_boom", {})
    while await boom.status() not in ("failed", "completed", "cancelled"):
        await anyio.sleep(0.02)
    error = (await peer.get(boom.id)).error
    assert error and error["code"] == -32000 and "boom" in error["message"], error


async def cancel(peer):
    async def stats():
        return json.loads((await peer.call("task_stats", {})).text)

    before = await stats()
    task = await peer.start("task_slow", {"seconds": 600})
    while (await stats())["started"] == before["started"]:
        await anyio.sleep(0.02)
    assert await task.status() == "working"
    await task.cancel()
    while await task.status() != "cancelled":
        await anyio.sleep(0.02)
    while (now := await stats())["cancelled"] == before["cancelled"]:
        assert now["finished"] == before["finished"], f"the handler ran to its end: {now}"
        await anyio.sleep(0.02)
    # A task that has ended acknowledges it too.
    await task.cancel()
    assert await task.status() == "cancelled"


async def unknown(peer):
    refused = await refusal(peer.get("no-such-task"))
    assert refused.code == -32602, refused


CHECKS = {"call": call, "attach": attach, "ask": ask, "errors": errors, "cancel": cancel, "unknown": unknown}
