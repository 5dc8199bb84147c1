//! Web pages: the origins that are accepted may send requests and read the responses.

use bowline::http::server::SourcePolicy;
use http::Method;

use crate::support::*;

const LOOPBACK_PAGE: &str = "http://localhost:6274";

type Request = http::Request<http_body_util::Full<bytes::Bytes>>;

fn preflight(origin: &str) -> Request {
    let mut request = call(1, "echo", "a");
    *request.method_mut() = Method::OPTIONS;
    *request.body_mut() = bytes::Bytes::new().into();
    let request = with_header(request, "origin", origin);
    let request = with_header(request, "access-control-request-method", "POST");
    let request = with_header(request, "access-control-request-private-network", "true");
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
    for (name, value) in [
        ("access-control-allow-methods", "GET, POST, DELETE"),
        ("access-control-max-age", "7200"),
        ("access-control-allow-private-network", "true"),
    ] {
        assert_eq!(granted.header(name), Some(value), "{name}");
    }
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

    assert_eq!(refused.status(), 403);
    assert_eq!(refused.header("access-control-allow-origin"), None);
    assert_eq!(allowed.status(), 204);
    let granted = allowed.header("access-control-allow-origin");
    assert_eq!(granted, Some(origin));
}

#[tokio::test]
async fn allowed_origins_are_added_to_a_policy_that_is_set_before_or_after() {
    let origin = "https://app.example";
    let policy = SourcePolicy::loopback;
    let service = || ServerFixture::new().server.http();

    for service in [
        service().cors([origin]).source(policy()),
        service().source(policy()).cors([origin]),
    ] {
        let allowed = send(&service, preflight(origin)).await;

        assert_eq!(allowed.status(), 204);
    }
}

#[tokio::test]
async fn a_preflight_is_granted_only_for_an_endpoint_and_with_an_origin() {
    let service = ServerFixture::new().server.http().paths(["/tools"]);
    let mut elsewhere = preflight(LOOPBACK_PAGE);
    *elsewhere.uri_mut() = "/elsewhere".parse().unwrap();
    let mut without_origin = preflight(LOOPBACK_PAGE);
    *without_origin.uri_mut() = "/tools".parse().unwrap();
    without_origin.headers_mut().remove("origin");

    let elsewhere = send(&service, elsewhere).await;
    let without_origin = send(&service, without_origin).await;

    assert_eq!(elsewhere.status(), 404);
    assert_eq!(without_origin.status(), 405);
}

async fn send(service: &bowline::http::HttpService, request: Request) -> PlainResponse {
    PlainConnection::http1(service).await.send(request).await
}
