//! Servers over plain HTTP on another machine, or what looks like one: an address of this machine that is not loopback.

use std::io::Write as _;
use std::net::{IpAddr, UdpSocket};

use bowline::prelude::*;

use crate::support::{BOWLINE, TempDir, in_time, run};

/// Says hello.
#[tool(read_only)]
async fn hello() -> &'static str {
    "hello"
}

/// Returns an address of this machine that is not loopback. No packet is sent.
fn own_address() -> Option<IpAddr> {
    [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")]
        .into_iter()
        .find_map(|(own, other)| {
            let socket = UdpSocket::bind(own).ok()?;
            socket.connect(other).ok()?;
            let address = socket.local_addr().ok()?.ip();
            (!address.is_loopback() && !address.is_unspecified()).then_some(address)
        })
}

/// Reports that a test did not run. Written past the test harness, which hides what a passing test prints.
fn report_skipped(test: &str) {
    let text = format!("SKIPPED {test}: this machine has no address but loopback\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Serves on all addresses, and returns the URL with an address that is not loopback.
async fn serve() -> Option<String> {
    let address = own_address()?;
    let server = Server::new("far", "1.0.0").tool(hello);
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let bound = server.http().bind(any).await.unwrap();
    let port = bound.local_addr().port();
    tokio::spawn(bound.serve());
    Some(format!(
        "http://{}/mcp",
        std::net::SocketAddr::new(address, port)
    ))
}

#[tokio::test]
async fn a_server_over_plain_http_beyond_loopback_is_reached() {
    in_time(async {
        let Some(url) = serve().await else {
            return report_skipped("a_server_over_plain_http_beyond_loopback_is_reached");
        };
        let folder = TempDir::new("plain-http");
        folder.write(
            "mcp.json",
            &format!(r#"{{"mcpServers": {{"far": {{"url": "{url}"}}}}}}"#),
        );
        let named = format!("{}#far", folder.0.join("mcp.json").display());
        for (words, expected) in [
            (&["ls", &url][..], "hello()"),
            (&["ls", &named], "hello()"),
            (&["call", &url, "hello"], "hello"),
            (&["call", &named, "hello"], "hello"),
            (&["ping", &url, "--count", "1"], "connected"),
            (&["ls", "--", BOWLINE, "bridge", &url], "hello()"),
            (&["call", "hello", "--", BOWLINE, "bridge", &url], "hello"),
        ] {
            let ended = run(words).await;

            assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
            let printed = format!("{}{}", ended.stdout, ended.stderr);
            assert!(printed.contains(expected), "{words:?}: {ended:?}");
            assert!(
                !ended.stderr.contains("unencrypted"),
                "{words:?}: {ended:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn credentials_over_plain_http_beyond_loopback_are_warned_of_once() {
    in_time(async {
        let Some(url) = serve().await else {
            return report_skipped("credentials_over_plain_http_beyond_loopback_are_warned_of_once");
        };
        let folder = TempDir::new("plain-http-headers");
        let of_file = format!(
            r#"{{"mcpServers": {{"far": {{"url": "{url}", "headers": {{"X-Api-Key": "s3cret"}}}}}}}}"#
        );
        folder.write("mcp.json", &of_file);
        let named = format!("{}#far", folder.0.join("mcp.json").display());
        let (token, cookie) = ("Authorization: Bearer s3cret", "Cookie: a=s3cret");
        for (words, header) in [
            (&["ls", &url, "--header", token][..], "`Authorization`"),
            (&["call", &url, "hello", "--header", cookie], "`Cookie`"),
            (&["ls", &named], "`X-Api-Key`"),
            (&["ls", "-v", "--", BOWLINE, "bridge", &url, "--header", token], "`Authorization`"),
        ] {
            let ended = run(words).await;

            assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
            let warnings = ended.stderr.lines().filter(|line| line.contains("bowline: warning: "));
            let warnings: Vec<_> = warnings.collect();
            assert_eq!(warnings.len(), 1, "{words:?}: {ended:?}");
            assert!(warnings[0].contains(header) && warnings[0].contains("unencrypted"), "{ended:?}");
            assert!(!ended.stderr.contains("s3cret"), "{ended:?}");
        }
        let harmless = run(&["ls", &url, "--header", "X-Tenant: a"]).await;
        assert_eq!((harmless.code, harmless.stderr.as_str()), (Some(0), ""), "{harmless:?}");
    })
    .await;
}

/// Serves one status, without a challenge, and returns the URL.
async fn refuse(address: IpAddr, status: u16) -> String {
    let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let status = http::StatusCode::from_u16(status).unwrap();
    let app = axum::Router::new().fallback(move || async move { (status, "no entry\u{1b}[2J") });
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

#[tokio::test]
async fn a_refusal_asks_for_a_token_only_where_one_helps_and_is_safe() {
    in_time(async {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let (near, forbidden) = (refuse(loopback, 401).await, refuse(loopback, 403).await);
        let token = ["--header", "Authorization: Bearer s3cret"];

        let asked = run(&["ls", &near]).await;
        let refused = run(&[&["ls", near.as_str()][..], &token].concat()).await;
        let by_policy = run(&["ls", &forbidden]).await;

        assert!(asked.stderr.contains("Bearer …"), "{asked:?}");
        assert!(
            refused.stderr.contains("the server refused this token"),
            "{refused:?}"
        );
        assert!(
            !refused.stderr.contains("requires authorization"),
            "{refused:?}"
        );
        let text = &by_policy.stderr;
        assert!(
            text.contains("HTTP status 403 Forbidden") && text.contains("no entry [2J"),
            "{text}"
        );
        assert!(
            !text.contains("authorization") && !text.contains("token"),
            "{text}"
        );
        let Some(address) = own_address() else {
            return report_skipped("a_refusal_asks_for_a_token_only_where_one_helps_and_is_safe");
        };
        let far = run(&["ls", &refuse(address, 401).await]).await;
        assert!(far.stderr.contains("use the https:// URL"), "{far:?}");
        assert!(
            !far.stderr.contains("Bearer") && !far.stderr.contains("--header"),
            "{far:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_name_without_address_and_a_closed_port_are_named_as_such() {
    in_time(async {
        let unknown = run(&["ls", "http://no-such-name.invalid/mcp"]).await;
        let address = own_address().unwrap_or(IpAddr::from([127, 0, 0, 1]));
        // Bound, so that no other test gets the port, and not listening.
        let socket = match address.is_ipv4() {
            true => tokio::net::TcpSocket::new_v4().unwrap(),
            false => tokio::net::TcpSocket::new_v6().unwrap(),
        };
        socket.bind((address, 0).into()).unwrap();
        let closed = socket.local_addr().unwrap();
        let refused = run(&["ls", &format!("http://{closed}/mcp")]).await;

        assert!(
            unknown
                .stderr
                .contains("check the name `no-such-name.invalid`"),
            "{unknown:?}"
        );
        assert!(refused.stderr.contains("Connection refused"), "{refused:?}");
        for ended in [unknown, refused] {
            assert_eq!(ended.code, Some(3), "{ended:?}");
            for word in ["authorization", "token", "doctor"] {
                assert!(!ended.stderr.contains(word), "{word}: {ended:?}");
            }
        }
    })
    .await;
}
