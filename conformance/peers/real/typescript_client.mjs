// Checks our server with an early version of the TypeScript SDK.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { main } from './plain.mjs';

const client = new Client({ name: 'typescript', version: '1' }, { capabilities: {} });

async function transport(mode, [first, ...args]) {
    if (mode === 'sse') return new SSEClientTransport(new URL(first));
    if (!first.startsWith('http://')) return new StdioClientTransport({ command: first, args });
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    return new StreamableHTTPClientTransport(new URL(first));
}

main({
    open: async (mode, target) => client.connect(await transport(mode, target)),
    listTools: async () => (await client.listTools()).tools.map(tool => tool.name),
    call: async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text,
    async abandon(name, args) {
        const letGo = new AbortController();
        const call = client.callTool({ name, arguments: args }, CallToolResultSchema, { signal: letGo.signal });
        call.catch(() => {});
        return () => letGo.abort('let go of');
    },
    close: () => client.close()
});
