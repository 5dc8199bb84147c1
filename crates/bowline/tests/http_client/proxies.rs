//! Proxies: how they are selected, what they receive, and that dropped calls close their connections.

use std::process::Stdio;

use bowline::http::client::Proxies;
use bowline::{Client, Error};
use tokio::process::Command;

use crate::scripted_server::{SSE_HEAD, ScriptedReply, ScriptedServer, reply_with, text_result};

/// A host that does not resolve, so that only a proxy can answer for it.
const ELSEWHERE: &str = "http://tools.invalid/mcp";
const MODERN: &str = "2026-07-28";

async fn proxy() -> ScriptedServer {
    ScriptedServer::start(|request| reply_with(request, &text_result("proxied"))).await
}

/// The URL of the proxy, with credentials.
fn url_with_credentials(proxy: &ScriptedServer) -> String {
    let address = proxy.url.strip_prefix("http://").unwrap();
    format!("http://ali%20baba:sesame@{address}")
}

#[tokio::test]
async fn a_proxy_gets_the_absolute_uri_and_its_credentials() {
    let mut proxy = proxy().await;
    let connect = Client::connect(ELSEWHERE).proxies(Proxies::all(url_with_credentials(&proxy)));
    let client = connect.protocol_version(MODERN).await.unwrap();

    let reply = client.call_tool("any", ()).await.unwrap();

    let request = proxy.request().await;
    assert_eq!(reply.text(), "proxied");
    assert_eq!(
        request.head.lines().next(),
        Some("POST http://tools.invalid/mcp HTTP/1.1")
    );
    assert_eq!(request.header("host"), Some("tools.invalid"));
    assert_eq!(
        request.header("proxy-authorization"),
        Some("Basic YWxpIGJhYmE6c2VzYW1l")
    );
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection_to_the_proxy() {
    let mut proxy = ScriptedServer::start(|_| ScriptedReply::BytesThenStall(SSE_HEAD.into())).await;
    let connect = Client::connect(ELSEWHERE).proxies(Proxies::all(&proxy.url));
    let client = connect.protocol_version(MODERN).await.unwrap();
    let mut call = client.call_tool("slow", ()).start();
    proxy.request_of(&mut call).await;

    drop(call);

    proxy.client_disconnected().await;
}

#[tokio::test]
async fn an_excepted_host_is_reached_directly() {
    let mut server = proxy().await;
    let mut proxy = proxy().await;
    let proxies = Proxies::all(&proxy.url).except("localhost, 127.0.0.0/8");
    let connect = Client::connect(&server.url).proxies(proxies);
    let client = connect.protocol_version(MODERN).await.unwrap();

    client.call_tool("any", ()).await.unwrap();

    let request = server.request().await;
    assert_eq!(request.head.lines().next(), Some("POST /mcp HTTP/1.1"));
    assert_eq!(request.header("proxy-authorization"), None);
    assert_eq!(proxy.drain_events(), [""; 0]);
}

#[tokio::test]
async fn an_unsupported_proxy_scheme_is_rejected_without_showing_its_password() {
    let proxies = Proxies::all("socks5://me:secret@127.0.0.1:1");
    let connect = Client::connect(ELSEWHERE).proxies(proxies);
    let client = connect.protocol_version(MODERN).await.unwrap();

    let error = client.call_tool("any", ()).await.unwrap_err();

    let chain = error_chain(&error);
    assert!(chain.contains("socks5://127.0.0.1:1"), "{chain}");
    assert!(!chain.contains("secret"), "{chain}");
}

/// Environment variables are per process, so each client is this test run in a child process.
#[tokio::test]
async fn environment_variables_select_the_proxy() {
    if let Ok(url) = std::env::var("BOWLINE_TEST_URL") {
        let client = Client::connect(&url)
            .protocol_version(MODERN)
            .await
            .unwrap();
        let reply = client.call_tool("any", ()).await.unwrap();
        assert_eq!(reply.text(), "proxied");
        return;
    }
    let server = proxy().await;
    let cases = [
        (vec![("HTTP_PROXY", "proxy")], ELSEWHERE, "proxy"),
        (vec![("http_proxy", "proxy")], ELSEWHERE, "proxy"),
        (vec![("ALL_PROXY", "proxy")], ELSEWHERE, "proxy"),
        (
            vec![("HTTP_PROXY", "proxy"), ("NO_PROXY", "127.0.0.1")],
            &server.url,
            "server",
        ),
        (
            vec![("http_proxy", "proxy"), ("no_proxy", "*")],
            &server.url,
            "server",
        ),
        (vec![("HTTPS_PROXY", "proxy")], &server.url, "server"),
        (
            vec![("HTTP_PROXY", "proxy"), ("REQUEST_METHOD", "GET")],
            &server.url,
            "server",
        ),
    ];
    for (variables, url, reached) in cases {
        let mut proxy = proxy().await;
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "proxies::environment_variables_select_the_proxy"])
            .env_clear()
            .env("BOWLINE_TEST_URL", url)
            .stdout(Stdio::null());
        for (name, value) in &variables {
            let value = value.replace("proxy", &proxy.url);
            child.env(name, value);
        }

        let status = child.status().await.unwrap();

        assert!(status.success(), "{variables:?}: {status}");
        let through = if proxy.drain_events().is_empty() {
            "server"
        } else {
            "proxy"
        };
        assert_eq!(through, reached, "{variables:?}");
    }
}

fn error_chain(error: &Error) -> String {
    let mut chain = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        chain = format!("{chain}: {cause}");
        next = cause.source();
    }
    chain
}
