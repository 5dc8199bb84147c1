"""What is checked of a server, by a client of either major version of the Python SDK.

A client gives what the checks need as an object with these members: `list_tools`, `call`, `read`, `prompt`, `raw`,
`subscribe`, `watch_tools`, `set_log_level`, `complete`, `version`, `user` and `log`. Each check is a line of output, and
the last line counts them.
"""

import json
import os
import sys
import traceback
from dataclasses import dataclass

import anyio

PATIENCE = 30
ABANDONED = 20
COUNTER = "fixture://counter"
LEVELS = ["debug", "info", "warning", "error"]


@dataclass
class Reply:
    """What a tool said."""

    text: str
    is_error: bool


class Refused(Exception):
    """The server said no, by an error of the protocol."""

    def __init__(self, code, message, data=None):
        super().__init__(f"{code} {message}")
        self.code, self.message, self.data = code, message, data


class User:
    """Answers the server's requests."""

    action = "cancel"
    content = None


def model_text(prompt):
    """What the model answers. It contains the prompt, so that the answer to another prompt is noticed."""
    return f"about {prompt}"


class Skipped(Exception):
    """This cannot be checked here."""


async def list_tools(peer):
    names = await peer.list_tools()
    for tool in ["echo", "add", "slow", "stats", "progress", "ask"]:
        assert tool in names, f"no `{tool}` in {names}"


async def call(peer):
    for said in ["plain", "", "zwei\nZeilen", "日本語 🪢 \0\x7f", "x" * 100_000]:
        heard = (await peer.call("echo", {"text": said})).text
        assert heard == said, f"`{said[:40]}` came back as `{heard[:40]}`"
    total = (await peer.call("add", {"a": -2, "b": 44})).text
    assert total == "42", f"-2 + 44 = {total}"


async def errors(peer):
    failed = await peer.call("fail", {"message": "as asked"})
    assert failed.is_error and "as asked" in failed.text, failed
    boom = await refusal(peer.call("boom", {}))
    assert boom.code == -32000 and "boom" in boom.message and boom.data == {"why": "fixture"}, boom
    try:
        assert (await peer.call("add", {"a": "one", "b": 2})).is_error, "`add` takes text for a number"
    except Refused as refused:
        assert refused.code == -32602, refused


async def unknown(peer):
    try:
        assert (await peer.call("no-such-tool", {})).is_error, "a tool that does not exist was called"
    except Refused as refused:
        assert refused.code in (-32602, -32601), refused
    method = await refusal(peer.raw("fixture/no-such-method"))
    assert method.code == -32601, method
    resource = await refusal(peer.read("fixture://no-such-resource"))
    assert resource.code in (-32602, -32002), resource


async def read(peer):
    text = await peer.read("fixture://static")
    assert text == "static", text
    greeting = await peer.prompt("greet", {"name": "Ada"})
    assert greeting == "Hello, Ada!", greeting


async def progress(peer):
    heard = []

    async def hear(progress, total, message):
        heard.append((progress, total, message))

    reply = await peer.call("progress", {"n": 5}, hear)
    # The SDK may hand on the last words of a call a little after its result.
    while len(heard) < 5:
        await anyio.sleep(0.01)
    assert heard == [(step, 5, f"step {step}") for step in range(1, 6)], heard
    assert "5" in reply.text, reply


async def many(peer):
    async def one(number):
        if number % 2:
            assert (await peer.call("add", {"a": number, "b": 1000})).text == str(number + 1000)
        else:
            assert (await peer.call("echo", {"text": f"word {number}"})).text == f"word {number}"

    async with anyio.create_task_group() as calls:
        for number in range(200):
            calls.start_soon(one, number)


async def ask(peer):
    answers = [("accept", {"name": "Ada"}, "accepted:Ada"), ("decline", None, "declined"), ("cancel", None, "cancelled")]
    for action, content, expected in answers:
        peer.user.action, peer.user.content = action, content
        said = (await peer.call("ask", {"prompt": "Who is there?"})).text
        assert said == expected, f"`{said}` instead of `{expected}`"


async def sample(peer):
    for prompt in ["knots", "ropes"]:
        said = (await peer.call("sample", {"prompt": prompt})).text
        assert said == f"sampled:{model_text(prompt)}", said


async def subscribe(peer):
    async with peer.subscribe(COUNTER) as next_change:
        before = int((await peer.call("touch", {"uri": "fixture://static"})).text)
        after = int((await peer.call("touch", {})).text)
        changed = await next_change()
    assert after == before + 1, (before, after)
    assert changed == COUNTER, changed


async def lists(peer):
    if "BOWLINE_MOCK" in os.environ:
        raise Skipped("a mock sends recorded changes after the subscription, not after the calls that caused them")
    async with peer.watch_tools() as next_change:
        for present in [True, False]:
            await peer.call("set_extra", {"present": present})
            await next_change()
            names = await peer.list_tools()
            assert ("extra" in names) == present, names
            if present:
                assert (await peer.call("extra", {})).text == "extra"


async def log(peer):
    for level in ["info", "error"]:
        await peer.set_log_level(level)
        peer.log.clear()
        await peer.call("log", {})
        expected = [(each, "fixture", f"at {each}") for each in LEVELS[LEVELS.index(level) :]]
        # The SDK may hand on the last messages of a call a little after its result. Those below the level would come
        # before the last one, which is always expected.
        while len(peer.log) < len(expected):
            await anyio.sleep(0.01)
        assert peer.log == expected, peer.log


async def complete(peer):
    for prefix, expected in [("A", ["Ada", "Alan"]), ("Bar", ["Barbara"])]:
        values = await peer.complete("greet", "name", prefix)
        assert values == expected, values


async def abandon(peer):
    async def stats():
        return json.loads((await peer.call("stats", {})).text)

    before = await stats()
    async with anyio.create_task_group() as calls:
        for _ in range(ABANDONED):
            calls.start_soon(peer.call, "slow", {"seconds": 600})
        while (await stats())["started"] < before["started"] + ABANDONED:
            await anyio.sleep(0.02)
        calls.cancel_scope.cancel()
    while (now := await stats())["cancelled"] != before["cancelled"] + ABANDONED:
        assert now["finished"] == before["finished"], f"a handler ran to its end: {now}"
        await anyio.sleep(0.02)
    assert (await peer.call("echo", {"text": "still here"})).text == "still here"


CHECKS = {
    "list": list_tools,
    "call": call,
    "errors": errors,
    "unknown": unknown,
    "read": read,
    "progress": progress,
    "many": many,
    "ask": ask,
    "sample": sample,
    "subscribe": subscribe,
    "lists": lists,
    "log": log,
    "complete": complete,
    "abandon": abandon,
}


async def refusal(call):
    try:
        answer = await call
    except Refused as refused:
        return refused
    raise AssertionError(f"this should have been refused: {answer}")


async def run(connect, checks=CHECKS):
    """Runs every check on what `connect` opens; the exit status."""
    passed = failed = 0

    def report(name, error=None):
        nonlocal passed, failed
        if error is None:
            passed += 1
            print(f"ok {name}", flush=True)
        else:
            failed += 1
            text = " ".join(f"{type(error).__name__}: {error}".split()) or repr(error)
            print(f"FAILED {name}: {text}", flush=True)
            traceback.print_exception(error, file=sys.stderr)

    stage = "open"
    try:
        async with connect() as peer:
            report("open")
            print(f"# {peer.version}", flush=True)
            for name, check in checks.items():
                try:
                    with anyio.fail_after(PATIENCE):
                        await check(peer)
                except Skipped as why:
                    print(f"skipped {name}: {why}", flush=True)
                except Exception as error:
                    report(name, error)
                else:
                    report(name)
            stage = "close"
        report("close")
    except Exception as error:
        report(stage, error)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0
