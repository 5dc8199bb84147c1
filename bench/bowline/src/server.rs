//! `bench-server`: a Bowline server over HTTP or standard input and output.

use bench_fixture::ServerOptions;
use bowline::http::legacy::Legacy;

fn main() -> bowline::Result<()> {
    let options = ServerOptions::read();
    bench_fixture::block_on(options.runtime, serve(options))
}

async fn serve(options: ServerOptions) -> bowline::Result<()> {
    let server = bench_bowline::server(options.tools);
    if options.stdio {
        return server.serve_stdio().await;
    }
    // More than the usual bound: how cost grows is measured with ten thousand idle ones besides those in use.
    let legacy = Legacy::sessions().max_sessions(20_000);
    let service = server.http().legacy(legacy);
    let bound = service.bind(("127.0.0.1", options.port)).await?;
    bench_fixture::announce(bound.addr());
    bound.serve().await
}
