//! `raw-proxy`: the ceiling for bridges, over TCP.

use std::sync::Arc;

use bench_fixture::ProxyOptions;
use bench_raw::{UpstreamPool, serve_connection};
use tokio::net::{TcpListener, TcpStream};

fn main() {
    let options = ProxyOptions::read();
    bench_fixture::block_on(options.runtime, serve(options));
}

async fn serve(options: ProxyOptions) {
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await;
    let listener = listener.expect("failed to bind");
    bench_fixture::print_address(listener.local_addr().expect("a bound socket"));
    let upstream = Arc::new(upstream_pool(&options.url));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.set_nodelay(true);
        tokio::spawn(serve_connection(stream, upstream.clone()));
    }
}

fn upstream_pool(url: &str) -> UpstreamPool<TcpStream> {
    let url: http::Uri = url.parse().expect("a URL");
    let authority = url.authority().expect("a URL with an authority");
    let authority = authority.to_string();
    UpstreamPool::new(move || {
        let authority = authority.clone();
        async move {
            let stream = TcpStream::connect(authority).await?;
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
    })
}
