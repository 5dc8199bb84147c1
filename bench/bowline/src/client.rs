//! `bench-client`: a typical Bowline client, over HTTP, to a child, or in one process with its server.

use bench_fixture::{ClientOptions, TIMEOUT, Target, measure_drops, measure_timeouts, run_load};
use bowline::prelude::*;
use bowline::wire::Command;
use serde_json::json;

fn main() -> bowline::Result<()> {
    let options = ClientOptions::read();
    bench_fixture::block_on(options.runtime, run(options))
}

async fn run(options: ClientOptions) -> bowline::Result<()> {
    let client = match &options.target {
        Target::Url(url) if options.legacy => {
            Client::connect(url).protocol_version("2025-11-25").await?
        }
        Target::Url(url) => Client::connect(url).await?,
        Target::Child(program) => {
            let command = Command::new(program).args(options.child_arguments());
            Client::spawn(command).await?
        }
        Target::Memory => {
            let (near, far) = bowline::wire::memory();
            tokio::spawn(bench_bowline::server(0).serve(far));
            Client::from_wire(near).await?
        }
        Target::InProcess => Client::in_process(&bench_bowline::server(0)).await?,
    };
    if options.drops > 0 {
        let slow = || {
            client
                .call_tool("slow", json!({"ms": 60_000}))
                .into_future()
        };
        let stats = async || {
            let reply = client.call_tool("stats", json!({})).await;
            reply.expect("a reply of `stats`").text()
        };
        measure_drops(options.drops, options.settle, slow, stats).await;
    } else if options.stalled {
        let long = "x".repeat(1 << 20);
        let call = || {
            let call = client.call_tool("echo", json!({"text": long}));
            call.idle_timeout(TIMEOUT).into_future()
        };
        measure_timeouts(call).await;
    } else {
        let caller = client.clone();
        let call = move || {
            let call = caller.call_tool("echo", json!({"text": "hello"}));
            async move { call.await.is_ok_and(|reply| reply.text() == "hello") }
        };
        run_load(options.in_flight, options.window, call).await;
    }
    client.close().await
}
