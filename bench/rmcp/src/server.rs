//! `rmcp-server`: the same server with rmcp, in the fastest configuration (a manual handler, no sessions, JSON
//! responses, non-blocking pipes), or with `--default` in the style of its documentation (macros, sessions, streams,
//! blocking pipes).

use std::sync::Arc;

use bench_fixture::ServerOptions;
use bench_rmcp::{MacroHandler, ManualHandler};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, ServiceExt as _};

fn main() {
    let options = ServerOptions::read();
    bench_fixture::block_on(options.runtime, serve(options));
}

async fn serve(options: ServerOptions) {
    let manual = ManualHandler::new(options.tools);
    let macros = MacroHandler::default();
    match (options.stdio, options.documented_style) {
        (true, false) => {
            let running = manual.serve(rmcp::transport::stdio_pipes()).await;
            let _ = running.expect("failed to accept a client").waiting().await;
        }
        (true, true) => {
            let running = macros.serve(rmcp::transport::stdio()).await;
            let _ = running.expect("failed to accept a client").waiting().await;
        }
        (false, false) => {
            let config = StreamableHttpServerConfig::default()
                .with_legacy_session_mode(false)
                .with_json_response(true);
            serve_http(options.port, config, manual).await;
        }
        (false, true) => {
            let config = StreamableHttpServerConfig::default();
            serve_http(options.port, config, macros).await;
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
    let listener = listener.expect("failed to bind");
    bench_fixture::print_address(listener.local_addr().expect("a bound socket"));
    use axum::serve::ListenerExt as _;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router)
        .await
        .expect("failed to serve");
}
