//! The raw server over stdio: blocking reads, and one write for all responses to a read.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use bench_fixture::ServerOptions;

use crate::responder::{Action, RawResponder};

pub(crate) fn serve(responder: &RawResponder, options: ServerOptions) {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut buffer = vec![0; 1 << 20];
    let (mut held, mut out) = (0, Vec::new());
    loop {
        if held == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        let Ok(read @ 1..) = input.read(&mut buffer[held..]) else {
            return;
        };
        held += read;
        let mut begun = 0;
        while let Some(length) = buffer[begun..held].iter().position(|&byte| byte == b'\n') {
            if let Action::Respond(text) = responder.handle(&buffer[begun..begun + length]) {
                out.extend_from_slice(&text);
                out.push(b'\n');
            }
            begun += length + 1;
        }
        buffer.copy_within(begun..held, 0);
        held -= begun;
        let written = output.write_all(&out).and_then(|()| output.flush());
        if written.is_err() {
            return;
        }
        out.clear();
        if options.stall {
            std::thread::sleep(STALLED);
            return;
        }
    }
}

/// Longer than any timeout of a client, and limited, because the parent process may have exited.
const STALLED: Duration = Duration::from_secs(15);
