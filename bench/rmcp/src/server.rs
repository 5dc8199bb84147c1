//! `rmcp-server`: the same server with rmcp, in the way that is fastest (a handler by hand, no sessions, JSON
//! answers, non-blocking pipes), or by `--default` in the way that its documentation shows first (macros,
//! sessions, streams, blocking pipes).

use std::sync::Arc;

use bench_fixture::ServerOptions;
use bench_rmcp::{ByHand, ByMacros};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, ServiceExt as _};

fn main() {
    let options = ServerOptions::read();
    bench_fixture::block_on(options.runtime, serve(options));
}

async fn serve(options: ServerOptions) {
    let by_hand = ByHand::new(options.tools);
    let by_macros = ByMacros::default();
    match (options.stdio, options.default_way) {
        (true, false) => {
            let running = by_hand.serve(rmcp::transport::stdio_pipes()).await;
            let _ = running.expect("a client connects").waiting().await;
        }
        (true, true) => {
            let running = by_macros.serve(rmcp::transport::stdio()).await;
            let _ = running.expect("a client connects").waiting().await;
        }
        (false, false) => {
            let config = StreamableHttpServerConfig::default()
                .with_legacy_session_mode(false)
                .with_json_response(true);
            serve_http(options.port, config, by_hand).await;
        }
        (false, true) => {
            let config = StreamableHttpServerConfig::default();
            serve_http(options.port, config, by_macros).await;
        }
    }
}

async fn serve_http<H>(port: u16, config: StreamableHttpServerConfig, handler: H)
where
    H: ServerHandler + Clone + Send + Sync + 'static,
{
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await;
    let listener = listener.expect("the port is free");
    bench_fixture::announce(listener.local_addr().expect("it is bound"));
    use axum::serve::ListenerExt as _;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await.expect("it serves");
}
