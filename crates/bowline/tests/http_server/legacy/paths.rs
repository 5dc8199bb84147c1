//! Which paths are answered, and to whom: clients that look for something else must not be kept waiting by a stream.

use std::net::SocketAddr;

use bowline::http::legacy::Legacy;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

const EVENTS: &str = "text/event-stream";

#[tokio::test]
async fn a_bound_service_has_nothing_but_streams_at_its_own_paths() {
    let stage = Stage::new();
    let service = stage.server.http().legacy(Legacy::sessions().http_sse());
    let (addr, _serving) = bound(service).await;

    for (path, accept, status) in [
        ("/", EVENTS, 200),
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
    ] {
        assert_eq!(get(addr, path, accept).await, status, "{path} {accept}");
    }
    assert_eq!(initialize_at(addr, "/mcp").await, 200);
    assert_eq!(initialize_at(addr, "/register").await, 404);
}

#[tokio::test]
async fn there_is_no_path_for_streams_where_http_sse_is_not_served() {
    let stage = Stage::new();
    let (addr, _serving) = bound(stage.server.http()).await;

    assert_eq!(get(addr, "/sse", EVENTS).await, 404);
    assert_eq!(get(addr, "/mcp", EVENTS).await, 400, "without a session");
    assert_eq!(get(addr, "/mcp", "text/html").await, 406);
}

#[tokio::test]
async fn other_paths_can_be_chosen() {
    let stage = Stage::new();
    let service = stage.server.http().paths(["/v1/tools", "/v2/tools/"]);
    let (addr, _serving) = bound(service).await;

    assert_eq!(initialize_at(addr, "/v1/tools").await, 200);
    assert_eq!(initialize_at(addr, "/v2/tools").await, 200);
    assert_eq!(initialize_at(addr, "/mcp").await, 404);
}

#[tokio::test(start_paused = true)]
async fn a_mounted_service_answers_what_it_is_given_except_requests_for_metadata() {
    let stage = Stage::new();
    let service = stage.server.http().legacy(Legacy::sessions().http_sse());

    for (path, status) in [
        ("/", 200),
        ("/anything", 200),
        ("/.well-known/oauth-protected-resource", 404),
        ("/.well-known/openid-configuration", 404),
    ] {
        let reply = Link::to(&service).await.send(getting(path, EVENTS)).await;

        assert_eq!(reply.status(), status, "{path}");
    }
}

async fn bound(service: HttpService) -> (SocketAddr, JoinHandle<bowline::Result<()>>) {
    let bound = service.bind("127.0.0.1:0").await.unwrap();
    (bound.addr(), tokio::spawn(bound.serve()))
}

/// The status of a GET. The body is not waited for, because it may be a stream.
async fn get(addr: SocketAddr, path: &str, accept: &str) -> u16 {
    status(addr, getting(path, accept)).await
}

async fn initialize_at(addr: SocketAddr, path: &str) -> u16 {
    let mut request = post(&initialize("2025-11-25"));
    *request.uri_mut() = path.parse().unwrap();
    status(addr, request).await
}

fn getting(path: &str, accept: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path)
        .header("host", "localhost")
        .header("accept", accept);
    request.body(Full::default()).unwrap()
}

async fn status(addr: SocketAddr, request: Request<Full<Bytes>>) -> u16 {
    let answered = async {
        let stream = TcpStream::connect(addr).await.unwrap();
        Link::over(stream, vec![]).await.send(request).await
    };
    let reply = timeout(std::time::Duration::from_secs(30), answered).await;
    reply.expect("an answer in time").status().as_u16()
}
