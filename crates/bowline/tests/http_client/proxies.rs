//! Proxies: which are used, what they are told, and that letting go reaches through them.

use std::process::Stdio;

use bowline::http::client::Proxies;
use bowline::{Client, Error};
use serde_json::json;
use tokio::process::Command;

use crate::scripted::{Arrived, Peer, STREAM, Say, json, result};

/// A host that no name server knows, so that only a proxy can have reached it.
const ELSEWHERE: &str = "http://tools.invalid/mcp";
const MODERN: &str = "2026-07-28";

async fn proxy() -> Peer {
    Peer::start(|request| Say::Bytes(answer(request))).await
}

fn answer(request: &Arrived) -> String {
    let content = json!([{"type": "text", "text": "proxied"}]);
    let told = json!({"resultType": "complete", "content": content});
    json("200 OK", &result(request, &told))
}

/// The proxy's address, with credentials.
fn credited(proxy: &Peer) -> String {
    let address = proxy.url.strip_prefix("http://").unwrap();
    format!("http://ali%20baba:sesame@{address}")
}

#[tokio::test]
async fn a_proxy_is_told_the_whole_url_and_who_asks() {
    let mut proxy = proxy().await;
    let connect = Client::connect(ELSEWHERE).proxies(Proxies::all(credited(&proxy)));
    let client = connect.speaking(MODERN).await.unwrap();

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
async fn dropping_a_call_is_seen_by_the_proxy() {
    let mut proxy = Peer::start(|_| Say::BytesThenStall(STREAM.into())).await;
    let connect = Client::connect(ELSEWHERE).proxies(Proxies::all(&proxy.url));
    let client = connect.speaking(MODERN).await.unwrap();
    let mut call = client.call_tool("slow", ()).start();
    tokio::select! {
        biased;
        outcome = &mut call => panic!("the call ended: {outcome:?}"),
        request = proxy.request() => assert_eq!(request.what(), "POST tools/call"),
    }

    drop(call);

    proxy.client_left().await;
}

#[tokio::test]
async fn an_excepted_host_is_reached_directly() {
    let mut server = proxy().await;
    let mut proxy = proxy().await;
    let proxies = Proxies::all(&proxy.url).except("localhost, 127.0.0.0/8");
    let connect = Client::connect(&server.url).proxies(proxies);
    let client = connect.speaking(MODERN).await.unwrap();

    client.call_tool("any", ()).await.unwrap();

    let request = server.request().await;
    assert_eq!(request.head.lines().next(), Some("POST /mcp HTTP/1.1"));
    assert_eq!(request.header("proxy-authorization"), None);
    assert_eq!(proxy.so_far(), [""; 0]);
}

#[tokio::test]
async fn a_proxy_of_another_kind_is_refused_by_its_name_and_without_its_password() {
    let proxies = Proxies::all("socks5://me:secret@127.0.0.1:1");
    let connect = Client::connect(ELSEWHERE).proxies(proxies);
    let client = connect.speaking(MODERN).await.unwrap();

    let error = client.call_tool("any", ()).await.unwrap_err();

    let told = causes(&error);
    assert!(told.contains("socks5://127.0.0.1:1"), "{told}");
    assert!(!told.contains("secret"), "{told}");
}

/// Environment variables belong to a process, so these clients each have one.
#[tokio::test]
async fn the_environment_says_which_proxy_to_use() {
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
            .args([
                "--exact",
                "--ignored",
                "proxies::a_client_in_a_process_of_its_own",
            ])
            .env_clear()
            .env("BOWLINE_TEST_URL", url)
            .stdout(Stdio::null());
        for (name, value) in &variables {
            let value = value.replace("proxy", &proxy.url);
            child.env(name, value);
        }

        let status = child.status().await.unwrap();

        assert!(status.success(), "{variables:?}: {status}");
        let through = if proxy.so_far().is_empty() {
            "server"
        } else {
            "proxy"
        };
        assert_eq!(through, reached, "{variables:?}");
    }
}

#[tokio::test]
#[ignore = "another test runs it in a process of its own"]
async fn a_client_in_a_process_of_its_own() {
    let url = std::env::var("BOWLINE_TEST_URL").unwrap();
    let client = Client::connect(&url).speaking(MODERN).await.unwrap();

    let reply = client.call_tool("any", ()).await.unwrap();

    assert_eq!(reply.text(), "proxied");
}

fn causes(error: &Error) -> String {
    let mut told = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        told = format!("{told}: {cause}");
        next = cause.source();
    }
    told
}
