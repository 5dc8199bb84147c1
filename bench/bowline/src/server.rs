//! `bench-server`: a Bowline server over HTTP or stdio.

use bench_fixture::ServerOptions;
use bowline::Limits;
use bowline::exchange::Dialects;

fn main() -> bowline::Result<()> {
    let options = ServerOptions::read();
    bench_fixture::block_on(options.runtime, serve(options))
}

async fn serve(options: ServerOptions) -> bowline::Result<()> {
    // Above the defaults: the leg `growth` opens ten thousand idle sessions.
    let server = bench_bowline::server(options.tools).limits(Limits {
        sessions: 20_000,
        subscriptions: 20_000,
        requests: 30_000,
        connections: 30_000,
        ..Limits::default()
    });
    let server = match options.legacy {
        true => server.versions(Dialects::only(|dialect| !dialect.is_modern())),
        false => server,
    };
    if options.stdio {
        return server.serve_stdio().await;
    }
    let bound = server.http().bind(("127.0.0.1", options.port)).await?;
    bench_fixture::print_address(bound.local_addr());
    bound.serve().await
}
