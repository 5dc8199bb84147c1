//! The paths that a service answers. A GET of any other path must not open a stream, which would block a client that
//! probes for metadata.

use std::net::SocketAddr;

use bowline::http::legacy::Legacy;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

const EVENTS: &str = "text/event-stream";

#[tokio::test]
async fn a_bound_service_serves_only_its_own_paths() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().legacy(Legacy::sessions().http_sse());
    let (addr, _serving) = bound(service).await;

    for (path, accept, status) in [
        ("/", EVENTS, 404),
        ("/mcp", EVENTS, 200),
        ("/mcp/", EVENTS, 200),
        ("/sse", EVENTS, 200),
        ("/sse?key=value", "*/*", 200),
        ("/sse", "text/html", 406),
        ("/mcp", "application/json", 406),
        ("/.well-known/oauth-protected-resource", EVENTS, 404),
        ("/.well-known/oauth-protected-resource/mcp", "*/*", 404),
        ("/.well-known/oauth-authorization-server", "*/*", 404),
        ("/register", "*/*", 404),
        ("/favicon.ico", "*/*", 404),
        ("/healthz", "*/*", 200),
    ] {
        assert_eq!(get(addr, path, accept).await, status, "{path} {accept}");
    }
    assert_eq!(initialize_at(addr, "/mcp").await, 200);
    assert_eq!(initialize_at(addr, "/register").await, 404);
}

#[tokio::test]
async fn without_http_sse_there_is_no_sse_path() {
    let fixture = ServerFixture::new();
    let (addr, _serving) = bound(fixture.server.http()).await;

    assert_eq!(get(addr, "/sse", EVENTS).await, 404);
    assert_eq!(get(addr, "/mcp", EVENTS).await, 400, "no session id");
    assert_eq!(get(addr, "/mcp", "text/html").await, 406);
}

#[tokio::test]
async fn paths_can_be_configured() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().paths(["/v1/tools", "/v2/tools/"]);
    let (addr, _serving) = bound(service).await;

    assert_eq!(initialize_at(addr, "/v1/tools").await, 200);
    assert_eq!(initialize_at(addr, "/v2/tools").await, 200);
    assert_eq!(initialize_at(addr, "/mcp").await, 404);
}

#[tokio::test(start_paused = true)]
async fn a_mounted_service_serves_every_path_except_well_known_metadata() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http().legacy(Legacy::sessions().http_sse());

    for (path, status) in [
        ("/", 200),
        ("/anything", 200),
        ("/.well-known/oauth-protected-resource", 404),
        ("/.well-known/openid-configuration", 404),
    ] {
        let response = PlainConnection::http1(&service)
            .await
            .send(get_request(path, EVENTS))
            .await;

        assert_eq!(response.status(), status, "{path}");
    }
}

async fn bound(service: HttpService) -> (SocketAddr, JoinHandle<bowline::Result<()>>) {
    let bound = service.bind("127.0.0.1:0").await.unwrap();
    (bound.local_addr(), tokio::spawn(bound.serve()))
}

/// Returns the status of a GET without reading the body, which may be an endless stream.
async fn get(addr: SocketAddr, path: &str, accept: &str) -> u16 {
    status(addr, get_request(path, accept)).await
}

async fn initialize_at(addr: SocketAddr, path: &str) -> u16 {
    let mut request = post(&initialize("2025-11-25"));
    *request.uri_mut() = path.parse().unwrap();
    status(addr, request).await
}

fn get_request(path: &str, accept: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path)
        .header("host", "localhost")
        .header("accept", accept);
    request.body(Full::default()).unwrap()
}

async fn status(addr: SocketAddr, request: Request<Full<Bytes>>) -> u16 {
    let sending = async {
        let stream = TcpStream::connect(addr).await.unwrap();
        PlainConnection::over_io(stream, vec![])
            .await
            .send(request)
            .await
    };
    let response = timeout(std::time::Duration::from_secs(30), sending).await;
    response.expect("a response in time").status().as_u16()
}
