// Checks the tasks of a server with `@modelcontextprotocol/ext-tasks`, on top of the TypeScript SDK.
//
//     node ext_tasks_client.mjs auto http://127.0.0.1:3000/mcp
//     node ext_tasks_client.mjs auto interop-server --transport stdio
//
// Each check is a line of output, and the last line counts them.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import {
    createApplicationInputHandler,
    createTaskSessionFromClient,
    resultFromTaskOutcome
} from '@modelcontextprotocol/ext-tasks/client';

const PATIENCE = 30_000;
const VERSION = '2026-07-28';
const clientInfo = { name: 'ext-tasks-client', version: '1' };
const clientCapabilities = { elicitation: { form: {} } };

const user = { answer: { action: 'cancel' } };

/** Makes a call that must become a task. */
async function start(session, tool, args = {}) {
    const execution = await session.callTool(tool, args);
    assert.equal(execution.kind, 'task', `\`${tool}\` did not become a task`);
    return execution;
}

async function result(execution) {
    const { outcome } = await execution.settle();
    const { content, isError } = resultFromTaskOutcome(outcome);
    return { text: content.map(block => block.text).join(''), isError: isError === true };
}

/** What the server said no with. */
async function refusal(answer) {
    try {
        await answer;
    } catch (error) {
        return error;
    }
    throw new Error('this should have been refused');
}

async function stats(session) {
    const execution = await session.callTool('task_stats', {});
    assert.equal(execution.kind, 'immediate', '`task_stats` became a task');
    return JSON.parse((await result(execution)).text);
}

const checks = {
    async call(session) {
        for (const text of ['plain', '', '日本語 🪢']) {
            assert.deepEqual(await result(await start(session, 'task_echo', { text })), { text, isError: false });
        }
        await stats(session);
    },

    async attach(session) {
        const execution = await start(session, 'task_echo', { text: 'taken up' });
        let reference;
        await execution.handoff(persisted => {
            reference = persisted;
        });
        // It counts as the owner until its own observation has ended, in a later turn.
        await sleep(0);
        const again = await session.resumeTask(JSON.parse(JSON.stringify(reference)));
        assert.equal((await result(again)).text, 'taken up');
        assert.equal((await session.task(reference.taskId).snapshot()).status, 'completed');
        const { result: kept } = await session.task(reference.taskId).result();
        assert.equal(kept.content[0].text, 'taken up');
    },

    async ask(session) {
        const answers = [
            [{ action: 'accept', content: { name: 'Ada' } }, 'accepted:Ada'],
            [{ action: 'decline' }, 'declined'],
            [{ action: 'cancel' }, 'cancelled']
        ];
        for (const [answer, expected] of answers) {
            user.answer = answer;
            assert.equal((await result(await start(session, 'task_ask'))).text, expected);
        }
    },

    async errors(session) {
        const failed = await result(await start(session, 'task_fail', { message: 'as asked' }));
        assert(failed.isError && failed.text.includes('as asked'), JSON.stringify(failed));
        const boom = (await (await start(session, 'task_boom')).settle()).outcome;
        assert.equal(boom.status, 'failed');
        assert.equal(boom.error.code, -32000);
        assert.match(boom.error.message, /boom/);
    },

    async cancel(session) {
        const before = await stats(session);
        const execution = await start(session, 'task_slow', { seconds: 600 });
        while ((await stats(session)).started === before.started) await sleep(20);
        await execution.cancel();
        const { taskId } = execution.handle;
        while ((await session.task(taskId).snapshot()).status !== 'cancelled') await sleep(20);
        for (let now; now?.cancelled !== before.cancelled + 1; await sleep(20)) {
            now = await stats(session);
            assert.equal(now.finished, before.finished, 'the handler ran to its end');
        }
        // A task that has ended acknowledges it too.
        await session.cancelTask(taskId);
        assert.equal((await session.task(taskId).snapshot()).status, 'cancelled');
    },

    async unknown(session) {
        const error = await refusal(session.task('no-such-task').snapshot());
        assert.equal(error.code, -32602, String(error));
    }
};

/**
 * Sends what the SDK itself cannot decode over its transport. The package leaves this to its users.
 */
function rawDispatch(transport) {
    const pending = new Map();
    const deliver = transport.onmessage;
    transport.onmessage = (message, extra) => {
        const settle = pending.get(message.id);
        if (settle === undefined || message.method !== undefined) return deliver?.(message, extra);
        pending.delete(message.id);
        const { result, error } = message;
        settle(error === undefined ? { kind: 'result', result } : { kind: 'error', error });
    };
    let next = 0;
    return (request, { signal } = {}) =>
        new Promise((resolve, reject) => {
            signal?.throwIfAborted();
            const id = `raw-${(next += 1)}`;
            pending.set(id, resolve);
            signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
            transport.send({ jsonrpc: '2.0', id, ...request }).catch(reject);
        });
}

let passed = 0;
let failed = 0;

/** Runs one check and reports it; what it gives, if it passes. */
async function report(name, check) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`not done after ${PATIENCE / 1000} s`)), PATIENCE);
    });
    try {
        const value = await Promise.race([check(), late]);
        passed += 1;
        console.log(`ok ${name}`);
        return value;
    } catch (error) {
        failed += 1;
        console.log(`FAILED ${name}: ${String(error?.message ?? error).replaceAll(/\s+/g, ' ')}`);
        console.error(error);
    } finally {
        clearTimeout(timer);
    }
}

const [, first, ...args] = process.argv.slice(2);
const client = new Client(clientInfo, {
    capabilities: clientCapabilities,
    versionNegotiation: { mode: { pin: VERSION } }
});
const session = await report('open', async () => {
    const transport = first.startsWith('http://')
        ? new StreamableHTTPClientTransport(new URL(first))
        : new StdioClientTransport({ command: first, args });
    await client.connect(transport);
    return createTaskSessionFromClient(client, {
        endpointId: 'interop',
        rawDispatch: rawDispatch(transport),
        v2RequestFraming: { protocolVersion: VERSION, clientInfo, clientCapabilities },
        onInputRequest: createApplicationInputHandler({
            elicitation: () => user.answer,
            sampling: () => Promise.reject(new Error('no sampling')),
            roots: () => ({ roots: [] })
        })
    });
});
if (session) {
    console.log(`# ${client.getNegotiatedProtocolVersion()}`);
    for (const [name, check] of Object.entries(checks)) await report(name, () => check(session));
    await report('close', async () => {
        await session.close();
        await client.close();
    });
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
