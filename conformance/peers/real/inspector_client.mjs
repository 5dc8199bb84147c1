// Checks our server with the Inspector's command line, which is started anew for each request.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { main, Skipped } from './plain.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const inspector = join(here, 'node_modules/.bin/mcp-inspector');
// It keeps things below the home folder.
const options = { env: { ...process.env, HOME: here } };
let target, transport;

function words(...request) {
    return [inspector, '--cli', ...transport, '--format', 'json', '--method', ...request, '--', ...target];
}

async function run(...request) {
    const { stdout } = await promisify(execFile)(process.execPath, words(...request), options);
    const output = JSON.parse(stdout);
    return output.result ?? output;
}

const toolCall = (name, args) => ['tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args)];

main({
    async open(mode, words) {
        target = words;
        transport = mode === 'sse' ? ['--transport', 'sse'] : [];
    },
    listTools: async () => (await run('tools/list')).tools.map(tool => tool.name),
    call: async (name, args) => (await run(...toolCall(name, args))).content[0].text,
    async abandon(name, args) {
        if (!target[0].startsWith('http://')) throw new Skipped('each call has a server of its own, which ends with it');
        const call = spawn(process.execPath, words(...toolCall(name, args)), { ...options, stdio: 'ignore' });
        return async () => {
            call.kill('SIGINT');
            await once(call, 'exit');
        };
    },
    close: async () => {}
});
