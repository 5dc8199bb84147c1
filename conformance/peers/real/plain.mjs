// What is checked of our server by a JavaScript client of another project. A client gives an object with
// `open`, `listTools`, which returns names, `call`, which returns text, `abandon`, which starts a call and returns a
// function that drops it, and `close`.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

const PATIENCE = 30_000;
const ABANDON_PATIENCE = 10_000;

export class Skipped extends Error {}

async function abandon(peer) {
    const stats = async () => JSON.parse(await peer.call('stats', {}));
    const before = await stats();
    const drop = await peer.abandon('slow', { seconds: 600 });
    while ((await stats()).started === before.started) await sleep(20);
    await drop();
    const deadline = Date.now() + ABANDON_PATIENCE;
    while ((await stats()).cancelled === before.cancelled) {
        assert(Date.now() < deadline, 'the handler is not told that its call was dropped');
        await sleep(20);
    }
    assert.equal(await peer.call('add', { a: 2, b: 40 }), '42');
}

const checks = {
    async list(peer) {
        const names = await peer.listTools();
        assert(names.includes('add'), `no \`add\` in ${names}`);
    },
    async call(peer) {
        assert.equal(await peer.call('add', { a: 2, b: 40 }), '42');
    },
    abandon,
    close: peer => peer.close()
};

export async function main(peer) {
    const counts = { passed: 0, failed: 0 };
    const report = async (name, check) => {
        let timer;
        const late = new Promise((_, reject) => {
            timer = setTimeout(() => reject(new Error(`not done after ${PATIENCE / 1000} s`)), PATIENCE);
        });
        try {
            const value = await Promise.race([check(), late]);
            counts.passed += 1;
            console.log(`ok ${name}`);
            return value;
        } catch (error) {
            const text = String(error?.message ?? error).replaceAll(/\s+/g, ' ');
            if (error instanceof Skipped) return console.log(`skipped ${name}: ${text}`);
            counts.failed += 1;
            console.log(`FAILED ${name}: ${text}`);
        } finally {
            clearTimeout(timer);
        }
    };
    const [mode, ...target] = process.argv.slice(2);
    const version = await report('open', async () => {
        await peer.open(mode, target);
        return peer.call('protocol_version', {});
    });
    if (version) {
        console.log(`# ${version}`);
        for (const [name, check] of Object.entries(checks)) await report(name, () => check(peer));
    }
    console.log(`${counts.passed} passed, ${counts.failed} failed`);
    process.exit(counts.failed === 0 ? 0 : 1);
}
