//! The paths of a bound server: clients that connect to a wrong one, and the health path.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bowline::http::server::{BoundServer, HttpBody};
use bowline::{Client, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_layer::layer_fn;

use crate::support::*;

#[tokio::test]
async fn the_error_of_a_wrong_path_names_the_url_the_status_and_the_right_path() {
    let bound = ServerFixture::new().server.http().bind("127.0.0.1:0").await;
    let bound = bound.unwrap();
    let origin = format!("http://{}", bound.local_addr());
    tokio::spawn(bound.serve());

    for path in ["/", "/wrong?key=secret"] {
        let refused = Client::connect(&format!("{origin}{path}")).await;

        let error = refused.unwrap_err();
        let text = format!("{error:?}");
        let url = format!("{origin}{}", path.trim_end_matches("?key=secret"));
        assert!(text.contains("404"), "{text}");
        assert!(text.contains(&url), "{text}");
        assert!(text.contains("it is at `/mcp`"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        assert!(matches!(error, Error::Transport { .. }));
    }
}

#[tokio::test]
async fn the_health_path_is_answered_outside_of_layers_and_for_any_host() {
    let bound = ServerFixture::new().server.http().bind("127.0.0.1:0").await;
    let bound = bound.unwrap();
    let addr = bound.local_addr();
    tokio::spawn(bound.layer(layer_fn(|_| RefuseAll)).serve());

    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(status_of(addr, "10.1.2.3", path).await, 200, "{path}");
    }
    assert_eq!(status_of(addr, "10.1.2.3", "/mcp").await, 401);
}

#[tokio::test]
async fn the_health_path_is_a_setting() {
    type Set = fn(BoundServer) -> BoundServer;
    let rows: [(Set, [u16; 5]); 6] = [
        (|bound| bound, [200, 200, 200, 404, 400]),
        (|bound| bound.health_path("/up"), [404, 200, 200, 200, 400]),
        (
            |bound| bound.liveness_path("/up"),
            [200, 404, 200, 200, 400],
        ),
        (
            |bound| bound.readiness_path("/up"),
            [200, 200, 404, 200, 400],
        ),
        (BoundServer::no_health_path, [404, 404, 404, 404, 400]),
        (|bound| bound.health_path("/mcp"), [404, 200, 200, 404, 400]),
    ];
    for (set, expected) in rows {
        let bound = ServerFixture::new().server.http().bind("127.0.0.1:0").await;
        let bound = set(bound.unwrap());
        let addr = bound.local_addr();
        let serving = tokio::spawn(bound.serve());

        let mut statuses = Vec::new();
        for path in ["/healthz", "/livez", "/readyz", "/up", "/mcp"] {
            statuses.push(status_of(addr, "localhost", path).await);
        }

        assert_eq!(statuses, expected);
        serving.abort();
    }
}

/// Sends a `GET` request, and returns the status of its response.
async fn status_of(addr: SocketAddr, host: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let status = response.split(' ').nth(1).expect("a status line");
    status.parse().unwrap()
}

/// A layer that refuses every request, as an authorization layer does without a token.
#[derive(Clone)]
struct RefuseAll;

impl<R> tower_service::Service<R> for RefuseAll {
    type Response = http::Response<HttpBody>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        let mut refused = http::Response::new(HttpBody::from(bytes::Bytes::new()));
        *refused.status_mut() = http::StatusCode::UNAUTHORIZED;
        ready(Ok(refused))
    }
}
