// Checks a server with the TypeScript SDK, which speaks both eras.
//
//     node client.mjs auto http://127.0.0.1:3000/mcp
//     node client.mjs legacy interop-server --transport stdio
//     node client.mjs sse http://127.0.0.1:3000/mcp
//
// Each check is a line of output, and the last line counts them.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
    Client,
    LOG_LEVEL_META_KEY,
    ProtocolError,
    SdkHttpError,
    SSEClientTransport,
    StreamableHTTPClientTransport
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import * as z from 'zod';

const COUNTER = 'fixture://counter';
const LEVELS = ['debug', 'info', 'warning', 'error'];
const ABANDONED = 20;
const PATIENCE = 30_000;
const MODES = { auto: 'auto', 2026: { pin: '2026-07-28' }, legacy: 'legacy', sse: 'legacy' };

const user = { action: 'cancel' };
const updates = [];
const log = [];
let toolChanges = 0;

async function call(client, name, args = {}, options = {}, meta = undefined) {
    const params = { name, arguments: args, ...(meta && { _meta: meta }) };
    const result = await client.callTool(params, { timeout: PATIENCE, ...options });
    const text = result.content.map(block => block.text).join('');
    return { text, isError: result.isError === true };
}

/** What the server said no with, by an error of the protocol. */
async function refusal(answer) {
    try {
        await answer;
    } catch (error) {
        if (error instanceof ProtocolError) return error;
        // What comes with a status other than 200 the SDK leaves unread.
        if (error instanceof SdkHttpError) return JSON.parse(error.data.text).error;
        throw error;
    }
    throw new Error('this should have been refused');
}

/** Whether the server said no, in either way. */
async function isRefused(answer, codes) {
    try {
        return (await answer).isError;
    } catch (error) {
        return error instanceof ProtocolError && codes.includes(error.code);
    }
}

const isModern = client => client.getNegotiatedProtocolVersion() === MODES[2026].pin;

/** What the model answers. It contains the prompt, so that the answer to another prompt is noticed. */
const modelText = prompt => `about ${prompt}`;

const stats = async client => JSON.parse((await call(client, 'stats')).text);

/** This cannot be checked here. */
class Skipped extends Error {}

const checks = {
    async list(client) {
        const names = (await client.listTools()).tools.map(tool => tool.name);
        for (const name of ['echo', 'add', 'slow', 'stats', 'progress', 'ask']) assert(names.includes(name), name);
    },

    async call(client) {
        for (const said of ['plain', '', 'zwei\nZeilen', '日本語 🪢 \0\x7f', 'x'.repeat(100_000)]) {
            assert.equal((await call(client, 'echo', { text: said })).text, said);
        }
        assert.equal((await call(client, 'add', { a: -2, b: 44 })).text, '42');
    },

    async errors(client) {
        const failed = await call(client, 'fail', { message: 'as asked' });
        assert(failed.isError && failed.text.includes('as asked'));
        const boom = await refusal(call(client, 'boom'));
        assert.equal(boom.code, -32000);
        assert.match(boom.message, /boom/);
        assert.deepEqual(boom.data, { why: 'fixture' });
        assert(await isRefused(call(client, 'add', { a: 'one', b: 2 }), [-32602]), '`add` takes text for a number');
    },

    async unknown(client) {
        assert(await isRefused(call(client, 'no-such-tool'), [-32602, -32601]), 'a tool that does not exist');
        const method = await refusal(client.request({ method: 'fixture/no-such-method', params: {} }, z.looseObject({})));
        assert.equal(method.code, -32601);
        const resource = await refusal(client.readResource({ uri: 'fixture://no-such-resource' }));
        assert([-32602, -32002].includes(resource.code), `an unknown resource gives ${resource.code}`);
    },

    async read(client) {
        assert.equal((await client.readResource({ uri: 'fixture://static' })).contents[0].text, 'static');
        const greeting = await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } });
        assert.equal(greeting.messages[0].content.text, 'Hello, Ada!');
    },

    async progress(client) {
        const steps = [1, 2, 3, 4, 5].map(step => ({ progress: step, total: 5, message: `step ${step}` }));
        let heard;
        // It drops progress that it reads together with the answer, which happens on a busy machine. The limit of the check
        // ends the repetitions.
        while (heard?.length !== steps.length) {
            heard = [];
            const onprogress = ({ progress, total, message }) => heard.push({ progress, total, message });
            const reply = await call(client, 'progress', { n: 5 }, { onprogress });
            assert.deepEqual(heard, steps.slice(0, heard.length));
            assert.match(reply.text, /5/);
        }
        assert.deepEqual(heard, steps);
    },

    async many(client) {
        const one = async number => {
            if (number % 2) assert.equal((await call(client, 'add', { a: number, b: 1000 })).text, `${number + 1000}`);
            else assert.equal((await call(client, 'echo', { text: `word ${number}` })).text, `word ${number}`);
        };
        await Promise.all(Array.from({ length: 200 }, (_, number) => one(number)));
    },

    async ask(client) {
        const answers = [
            [{ action: 'accept', content: { name: 'Ada' } }, 'accepted:Ada'],
            [{ action: 'decline', content: undefined }, 'declined'],
            [{ action: 'cancel', content: undefined }, 'cancelled']
        ];
        for (const [answer, expected] of answers) {
            Object.assign(user, answer);
            assert.equal((await call(client, 'ask', { prompt: 'Who is there?' })).text, expected);
        }
    },

    async sample(client) {
        for (const prompt of ['knots', 'ropes']) {
            assert.equal((await call(client, 'sample', { prompt })).text, `sampled:${modelText(prompt)}`);
        }
    },

    async subscribe(client) {
        const subscription = isModern(client)
            ? await client.listen({ resourceSubscriptions: [COUNTER] })
            : await client.subscribeResource({ uri: COUNTER });
        const before = Number((await call(client, 'touch', { uri: 'fixture://static' })).text);
        assert.equal(Number((await call(client, 'touch')).text), before + 1);
        while (updates.length === 0) await sleep(20);
        // With replicas, an update may also announce that a subscription is in effect where the client listens.
        const distinct = process.env.BOWLINE_REPLICAS ? [...new Set(updates)] : updates;
        assert.deepEqual(distinct, [COUNTER]);
        await (isModern(client) ? subscription.close() : client.unsubscribeResource({ uri: COUNTER }));
    },

    async lists(client) {
        if (process.env.BOWLINE_MOCK) {
            throw new Skipped('a mock sends recorded changes after the subscription, not after the calls that caused them');
        }
        const subscription = isModern(client) ? await client.listen({ toolsListChanged: true }) : undefined;
        for (const present of [true, false]) {
            toolChanges = 0;
            await call(client, 'set_extra', { present });
            while (toolChanges === 0) await sleep(20);
            const names = (await client.listTools()).tools.map(tool => tool.name);
            assert.equal(names.includes('extra'), present);
            if (present) assert.equal((await call(client, 'extra')).text, 'extra');
        }
        await subscription?.close();
    },

    async log(client) {
        for (const level of ['info', 'error']) {
            // In the newer era each call carries the level, for which the SDK has no other option.
            const meta = isModern(client) ? { [LOG_LEVEL_META_KEY]: level } : undefined;
            if (!meta) await client.setLoggingLevel(level);
            log.length = 0;
            await call(client, 'log', {}, {}, meta);
            const expected = LEVELS.slice(LEVELS.indexOf(level));
            // Those below the level would come before the last one, which is always expected.
            while (log.length < expected.length) await sleep(20);
            assert.deepEqual(log, expected.map(each => ({ level: each, logger: 'fixture', data: `at ${each}` })));
        }
    },

    async complete(client) {
        const ref = { type: 'ref/prompt', name: 'greet' };
        for (const [value, expected] of [['A', ['Ada', 'Alan']], ['Bar', ['Barbara']]]) {
            const { completion } = await client.complete({ ref, argument: { name: 'name', value } });
            assert.deepEqual(completion.values, expected);
        }
    },

    async abandon(client) {
        const before = await stats(client);
        const letGo = new AbortController();
        const options = { signal: letGo.signal, timeout: 600_000 };
        const calls = Array.from({ length: ABANDONED }, () => call(client, 'slow', { seconds: 600 }, options));
        const ends = Promise.allSettled(calls);
        while ((await stats(client)).started < before.started + ABANDONED) await sleep(20);
        letGo.abort('let go of');
        assert((await ends).every(end => end.status === 'rejected'));
        for (let now; now?.cancelled !== before.cancelled + ABANDONED; await sleep(20)) {
            now = await stats(client);
            assert.equal(now.finished, before.finished, 'a handler ran to its end');
        }
        assert.equal((await call(client, 'echo', { text: 'still here' })).text, 'still here');
    }
};

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
        if (error instanceof Skipped) return void console.log(`skipped ${name}: ${error.message}`);
        failed += 1;
        console.log(`FAILED ${name}: ${String(error?.message ?? error).replaceAll(/\s+/g, ' ')}`);
        console.error(error);
    } finally {
        clearTimeout(timer);
    }
}

const [mode, ...target] = process.argv.slice(2);
const client = new Client(
    { name: 'typescript-client', version: '1' },
    { capabilities: { elicitation: { form: {} }, sampling: {} }, versionNegotiation: { mode: MODES[mode] } }
);
client.setRequestHandler('elicitation/create', () => ({ ...user }));
client.setRequestHandler('sampling/createMessage', ({ params }) => {
    const text = modelText(params.messages[0].content.text);
    return { role: 'assistant', model: 'scripted', content: { type: 'text', text } };
});
client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
    updates.push(params.uri);
});
client.setNotificationHandler('notifications/tools/list_changed', () => {
    toolChanges += 1;
});
client.setNotificationHandler('notifications/message', ({ params: { level, logger, data } }) => {
    log.push({ level, logger, data });
});

function reach(first, ...args) {
    if (mode === 'sse') return new SSEClientTransport(new URL(first));
    if (first.startsWith('http://')) return new StreamableHTTPClientTransport(new URL(first));
    return new StdioClientTransport({ command: first, args });
}

const opened = await report('open', async () => {
    await client.connect(reach(...target));
    return true;
});
if (opened) {
    console.log(`# ${client.getNegotiatedProtocolVersion()}`);
    for (const [name, check] of Object.entries(checks)) await report(name, () => check(client));
    await report('close', () => client.close());
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
