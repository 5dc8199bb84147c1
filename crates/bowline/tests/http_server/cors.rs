//! Web pages: the origins that are accepted may send requests and read the responses.

use http::Method;

use crate::support::*;

const LOOPBACK_PAGE: &str = "http://localhost:6274";

fn preflight(origin: &str) -> http::Request<http_body_util::Full<bytes::Bytes>> {
    let mut request = call(1, "echo", "a");
    *request.method_mut() = Method::OPTIONS;
    *request.body_mut() = bytes::Bytes::new().into();
    let request = with_header(request, "origin", origin);
    let request = with_header(request, "access-control-request-method", "POST");
    let headers = "content-type, mcp-method, mcp-param-region";
    with_header(request, "access-control-request-headers", headers)
}

#[tokio::test]
async fn a_page_of_a_loopback_origin_may_call_a_loopback_server_without_a_setting() {
    let service = ServerFixture::new().server.http();

    let granted = send(&service, preflight(LOOPBACK_PAGE)).await;
    let called = with_header(call(1, "echo", "a"), "origin", LOOPBACK_PAGE);
    let called = send(&service, called).await;

    assert_eq!(granted.status(), 204);
    let allowed = granted.header("access-control-allow-headers");
    assert_eq!(allowed, Some("content-type, mcp-method, mcp-param-region"));
    assert_eq!(called.status(), 200);
    for response in [&granted, &called] {
        let origin = response.header("access-control-allow-origin");
        assert_eq!(origin, Some(LOOPBACK_PAGE));
        assert_eq!(response.header("vary"), Some("origin"));
        let exposed = response.header("access-control-expose-headers");
        assert_eq!(exposed, Some("*"));
    }
}

#[tokio::test]
async fn a_page_can_read_why_its_request_was_refused() {
    let service = ServerFixture::new().server.http();
    let request = with_header(call(1, "echo", "a"), "origin", LOOPBACK_PAGE);

    let refused = send(&service, with_header(request, "mcp-method", "tools/list")).await;

    assert_eq!(refused.status(), 400);
    let origin = refused.header("access-control-allow-origin");
    assert_eq!(origin, Some(LOOPBACK_PAGE));
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused_unless_it_is_allowed() {
    let origin = "https://app.example";
    let service = ServerFixture::new().server.http();

    let refused = send(&service, preflight(origin)).await;
    let allowed = send(&service.cors([origin]), preflight(origin)).await;

    assert_ne!(refused.status(), 204);
    assert_eq!(refused.header("access-control-allow-origin"), None);
    assert_eq!(allowed.status(), 204);
    let granted = allowed.header("access-control-allow-origin");
    assert_eq!(granted, Some(origin));
}

async fn send(
    service: &bowline::http::HttpService,
    request: http::Request<http_body_util::Full<bytes::Bytes>>,
) -> PlainResponse {
    PlainConnection::http1(service).await.send(request).await
}
