// The interop fixture on the TypeScript SDK, which speaks both eras.
//
//     node server.mjs --transport stdio
//     node server.mjs --transport http --port 3000

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { parseArgs } from 'node:util';
import {
    completable,
    createMcpHandler,
    inputRequired,
    isLegacyRequest,
    McpServer,
    ProtocolError,
    ResourceTemplate,
    WebStandardStreamableHTTPServerTransport
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const COUNTER = 'fixture://counter';
const LEVELS = ['debug', 'info', 'warning', 'error'];
const NAMES = ['Ada', 'Alan', 'Barbara'];

let touched = 0;
let hasExtra = false;
const slow = { started: 0, finished: 0, cancelled: 0 };

// Each connection of the older era, with what it subscribed to; in the newer one there is the handler's bus.
const subscribers = new Map();
let notify = () => {};
// The tool `extra` of each connection, which notifies its client when it is added or removed. Over HTTP the newer era has
// no connections.
const extras = new Map();
let notifyOfTools = () => {};

const text = text => ({ content: [{ type: 'text', text }] });

/** A server for one connection, or for one request. */
function fixture({ era }) {
    const mcp = new McpServer(
        { name: 'typescript-fixture', version: '1' },
        { capabilities: { resources: { subscribe: true }, logging: {} } }
    );
    const tool = (name, inputs, run) => mcp.registerTool(name, { description: name, inputSchema: z.object(inputs) }, run);

    tool('echo', { text: z.string() }, args => text(args.text));
    tool('add', { a: z.int(), b: z.int() }, ({ a, b }) => ({
        ...text(String(a + b)),
        structuredContent: { result: a + b }
    }));
    tool('slow', { seconds: z.number() }, async ({ seconds }, ctx) => {
        slow.started += 1;
        const slept = await sleep(seconds * 1000, ctx.mcpReq.signal);
        slow[slept ? 'finished' : 'cancelled'] += 1;
        return text('slept');
    });
    tool('stats', {}, () => {
        const stats = { ...slow, active: slow.started - slow.finished - slow.cancelled };
        return { ...text(JSON.stringify(stats)), structuredContent: stats };
    });
    tool('progress', { n: z.int() }, async ({ n }, ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (let step = 1; progressToken !== undefined && step <= n; step += 1) {
            const params = { progressToken, progress: step, total: n, message: `step ${step}` };
            await ctx.mcpReq.notify({ method: 'notifications/progress', params });
        }
        return text(`${n} steps`);
    });
    tool('ask', { prompt: z.string().optional() }, ({ prompt }, ctx) => {
        const answer = ctx.mcpReq.inputResponses?.name;
        if (answer === undefined) {
            const message = prompt ?? 'What is your name?';
            const requestedSchema = z.object({ name: z.string() });
            return inputRequired({ inputRequests: { name: inputRequired.elicit({ message, requestedSchema }) } });
        }
        return text({ accept: `accepted:${answer.content?.name}`, decline: 'declined' }[answer.action] ?? 'cancelled');
    });
    tool('sample', { prompt: z.string() }, ({ prompt }, ctx) => {
        const answer = ctx.mcpReq.inputResponses?.model;
        if (answer === undefined) {
            const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
            return inputRequired({ inputRequests: { model: inputRequired.createMessage({ messages, maxTokens: 100 }) } });
        }
        return text(`sampled:${answer.content.text}`);
    });
    tool('log', {}, async (_, ctx) => {
        for (const level of LEVELS) await ctx.mcpReq.log(level, `at ${level}`, 'fixture');
        return text('logged');
    });
    const extra = tool('extra', {}, () => text('extra'));
    if (!hasExtra) extra.disable();
    tool('set_extra', { present: z.boolean() }, ({ present }) => {
        hasExtra = present;
        for (const each of extras.values()) each[present ? 'enable' : 'disable']();
        notifyOfTools();
        return text('ok');
    });
    tool('touch', { uri: z.string().default(COUNTER) }, async ({ uri }) => {
        touched += 1;
        notify(uri);
        for (const [server, uris] of subscribers) {
            if (uris.has(uri)) await server.sendResourceUpdated({ uri });
        }
        return text(String(touched));
    });
    tool('fail', { message: z.string() }, ({ message }) => ({ ...text(message), isError: true }));
    tool('boom', {}, () => text('see below'));
    tool('reset', {}, () => {
        Object.assign(slow, { started: 0, finished: 0, cancelled: 0 });
        return text('ok');
    });

    const plain = { mimeType: 'text/plain' };
    const holding = text => uri => ({ contents: [{ uri: uri.href, ...plain, text: text() }] });
    mcp.registerResource('counter', COUNTER, plain, holding(() => String(touched)));
    mcp.registerResource('static', 'fixture://static', plain, holding(() => 'static'));
    const items = new ResourceTemplate('fixture://item/{id}', { list: undefined });
    mcp.registerResource('item', items, plain, (uri, { id }) => holding(() => `item ${id}`)(uri));
    const name = completable(z.string(), value => NAMES.filter(each => each.startsWith(value)));
    mcp.registerPrompt('greet', { argsSchema: z.object({ name }) }, ({ name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${name}!` } }]
    }));

    failAsProtocolsDo(mcp.server);
    if (era === 'legacy' || !overHttp) extras.set(mcp.server, extra);
    if (era === 'legacy') takeSubscriptions(mcp.server);
    else if (!overHttp) notify = uri => mcp.server.sendResourceUpdated({ uri });
    return mcp;
}

/** What a tool throws becomes its result, so that an error of the protocol has to be thrown before. */
function failAsProtocolsDo(server) {
    const callTool = server._requestHandlers.get('tools/call');
    server._requestHandlers.set('tools/call', async (request, ctx) => {
        if (request.params.name === 'boom') throw new ProtocolError(-32000, 'boom, as asked', { why: 'fixture' });
        return callTool(request, ctx);
    });
}

function takeSubscriptions(server) {
    const uris = new Set();
    subscribers.set(server, uris);
    server.onclose = () => {
        subscribers.delete(server);
        extras.delete(server);
    };
    server.setRequestHandler('resources/subscribe', ({ params }) => {
        uris.add(params.uri);
        return {};
    });
    server.setRequestHandler('resources/unsubscribe', ({ params }) => {
        uris.delete(params.uri);
        return {};
    });
}

/** Whether it slept to the end. */
function sleep(milliseconds, signal) {
    return new Promise(resolve => {
        if (signal.aborted) return resolve(false);
        const timer = setTimeout(() => resolve(true), milliseconds);
        signal.addEventListener('abort', () => {
            clearTimeout(timer);
            resolve(false);
        });
    });
}

/** Both eras at one URL: each request of the newer one by itself, the older one by its sessions. */
function serveHttp(port) {
    const modern = createMcpHandler(fixture, { legacy: 'reject' });
    notify = uri => modern.notify.resourceUpdated(uri);
    notifyOfTools = () => modern.notify.toolsChanged();
    const sessions = new Map();

    async function legacy(request) {
        const known = sessions.get(request.headers.get('mcp-session-id'));
        if (known) return known.handleRequest(request);
        const transport = new WebStandardStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: id => sessions.set(id, transport),
            onsessionclosed: id => sessions.delete(id)
        });
        await fixture({ era: 'legacy' }).connect(transport);
        return transport.handleRequest(request);
    }

    const http = createServer(async (incoming, outgoing) => {
        const gone = new AbortController();
        outgoing.on('close', () => gone.abort());
        const hasBody = incoming.method === 'POST';
        const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
            method: incoming.method,
            headers: incoming.headers,
            body: hasBody ? Readable.toWeb(incoming) : undefined,
            duplex: hasBody ? 'half' : undefined,
            signal: gone.signal
        });
        try {
            const response = (await isLegacyRequest(request)) ? await legacy(request) : await modern.fetch(request);
            outgoing.writeHead(response.status, Object.fromEntries(response.headers));
            outgoing.flushHeaders();
            if (response.body) Readable.fromWeb(response.body).on('error', () => outgoing.destroy()).pipe(outgoing);
            else outgoing.end();
        } catch {
            // The client is gone.
            outgoing.destroy();
        }
    });
    http.listen(port, '127.0.0.1', () => console.log(`READY http://127.0.0.1:${http.address().port}/mcp`));
}

const { values } = parseArgs({
    options: { transport: { type: 'string' }, port: { type: 'string', default: '0' } }
});
const overHttp = values.transport === 'http';
if (overHttp) serveHttp(Number(values.port));
else serveStdio(fixture);
