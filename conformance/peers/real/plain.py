"""What is checked of our server by a Python client of another project.

A client gives an object with `list_tools`, which returns names, and `call`, which returns text. Our server says itself
which version they have agreed upon.
"""

import json
import logging
import sys
import warnings
from contextlib import asynccontextmanager

import anyio

from checks import run

PATIENCE = 10


async def list_tools(peer):
    names = await peer.list_tools()
    assert "add" in names, f"no `add` in {names}"


async def call(peer):
    total = await peer.call("add", {"a": 2, "b": 40})
    assert total == "42", f"2 + 40 = {total}"


async def abandon(peer):
    async def stats():
        return json.loads(await peer.call("stats", {}))

    before = await stats()
    async with anyio.create_task_group() as calls:
        calls.start_soon(peer.call, "slow", {"seconds": 600})
        while (await stats())["started"] == before["started"]:
            await anyio.sleep(0.02)
        calls.cancel_scope.cancel()
    with anyio.move_on_after(PATIENCE):
        while (now := await stats())["cancelled"] == before["cancelled"]:
            await anyio.sleep(0.02)
    await call(peer)
    assert now["cancelled"] > before["cancelled"], "the handler is not told that its call was dropped"


def main(connect):
    """Runs the checks on what `connect(mode, target)` opens."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

    @asynccontextmanager
    async def opened():
        async with connect(sys.argv[1], sys.argv[2:]) as peer:
            peer.version = await peer.call("protocol_version", {})
            yield peer

    checks = {"list": list_tools, "call": call, "abandon": abandon}
    sys.exit(anyio.run(run, opened, checks))
