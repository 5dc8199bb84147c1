// A server on an early version of the TypeScript SDK: `stdio`, or `http` or `sse` and a port.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const inputSchema = { type: 'object' };

function server() {
    const server = new Server({ name: 'typescript', version: '1' }, { capabilities: { tools: {} } });
    server.setRequestHandler(ListToolsRequestSchema, () => ({
        tools: [
            { name: 'add', inputSchema },
            { name: 'slow', inputSchema }
        ]
    }));
    server.setRequestHandler(CallToolRequestSchema, async ({ params: { name, arguments: args } }) => {
        if (name === 'slow') await sleep(args.seconds * 1000, undefined, { ref: false });
        return { content: [{ type: 'text', text: name === 'add' ? `${args.a + args.b}` : 'slept' }] };
    });
    return server;
}

const [mode, port] = process.argv.slice(2);
const transports = new Map();

/** The two endpoints that HTTP had at first. */
async function overSse(request, response) {
    const url = new URL(request.url, 'http://127.0.0.1');
    if (request.method === 'GET') {
        const transport = new SSEServerTransport('/messages', response);
        transports.set(transport.sessionId, transport);
        return server().connect(transport);
    }
    const transport = transports.get(url.searchParams.get('sessionId'));
    if (transport) return transport.handlePostMessage(request, response);
    response.writeHead(404).end();
}

/** One endpoint, with sessions. */
async function overHttp(request, response) {
    const { StreamableHTTPServerTransport } = await import('@modelcontextprotocol/sdk/server/streamableHttp.js');
    const known = transports.get(request.headers['mcp-session-id']);
    if (known) return known.handleRequest(request, response);
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: id => transports.set(id, transport)
    });
    await server().connect(transport);
    return transport.handleRequest(request, response);
}

if (mode === 'stdio') await server().connect(new StdioServerTransport());
else createServer(mode === 'sse' ? overSse : overHttp).listen(Number(port), '127.0.0.1');
