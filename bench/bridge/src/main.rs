//! Runs calls through a bridge, and the same ones through the raw proxy: `bench-bridge CASE TIMES`, like `bench-counts`.
//! It is another program, because the bridge adds features to the SDK.
//!
//! Client and server are as small as they can be, and everything runs on one thread and in memory, so that the counts
//! are deterministic.

mod ends;

use std::process::ExitCode;
use std::sync::Arc;

use bench_raw::{UpstreamPool, serve_connection};
use bowline::Client;
use bowline::http::client::{HttpStream, HyperClient};
use bowline_bridge::{Bridge, Target};
use tokio::io::DuplexStream;

/// Runs calls through one program between a client and a server this many times.
type Case = fn(u64);

const CASES: &[(&str, Case)] = &[
    ("bridge: tools/call, HTTP to HTTP", bridge),
    ("bridge: tools/call, HTTP to HTTP, raw proxy", raw_proxy),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [] => {
            CASES.iter().for_each(|(name, _)| println!("{name}"));
            ExitCode::SUCCESS
        }
        [name, times] => {
            let case = CASES.iter().find(|(known, _)| known == name);
            let (Some((_, case)), Ok(times)) = (case, times.parse()) else {
                eprintln!("unknown case `{name}`, or `{times}` is not a number");
                return ExitCode::FAILURE;
            };
            case(times);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("Usage: bench-bridge [CASE TIMES]");
            ExitCode::FAILURE
        }
    }
}

fn bridge(times: u64) {
    block_on(async move {
        let target = Target::new("raw", |_| {
            let connector = async |_| Ok(HttpStream::new(connect()));
            let http_client = HyperClient::with_connector(connector);
            Ok(Client::connect("http://127.0.0.1/mcp").http_client(http_client))
        });
        let service = Bridge::new(target.stateless()).http();
        let (near, far) = pipe();
        tokio::spawn(async move { service.serve_connection(far).await });
        ends::call(near, times).await;
    });
}

fn raw_proxy(times: u64) {
    block_on(async move {
        let upstream = Arc::new(UpstreamPool::new(async || Ok(connect())));
        let (near, far) = pipe();
        tokio::spawn(serve_connection(far, upstream));
        ends::call(near, times).await;
    });
}

/// Opens a connection to a server.
fn connect() -> DuplexStream {
    let (near, far) = pipe();
    tokio::spawn(ends::serve(far));
    near
}

fn pipe() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(16 * 1024)
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    runtime
        .expect("failed to build the runtime")
        .block_on(future)
}
