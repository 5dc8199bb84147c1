//! The tap on HTTP.

use bowline::Client;
use bowline::client::{Change, ChangeFilter, Host};
use bowline::http::server::TlsConfig;
use bowline::types::ElicitResult;
use bowline_cli::SlowCallCounts;
use bowline_cli::fixture::Fixture;
use bowline_recording::{CancelForm, EndedBy, ExchangeState};
use serde_json::{Value, json};

use crate::raw_http::{RawConnection, RawServer};
use crate::support::{Folder, LEGACY, MODERN, Program, Recorded, in_time};

/// Asks the server, past the tap, until its counters meet a condition.
async fn wait_for_counts(server: &Client, condition: impl Fn(&SlowCallCounts) -> bool) {
    loop {
        let stats = server.call_tool("stats", ()).await.unwrap();
        if condition(&stats.structured().unwrap()) {
            return;
        }
    }
}

#[tokio::test]
async fn clients_of_both_eras_call_through_the_proxy_and_a_dropped_call_stops_its_handler() {
    in_time(async {
        for (version, form) in [
            (MODERN, CancelForm::ClosedStream),
            (LEGACY, CancelForm::PostedFrame),
        ] {
            let folder = Folder::new();
            let file = folder.file("a.jsonl");
            let (_server, upstream) = Program::http_fixture().await;
            let (tap, url) = Program::proxy(&upstream, &["--record", &file]).await;
            let direct = Client::connect(&upstream).await.unwrap();
            let answer = |_| async { ElicitResult::accept(json!({"name": "Ada"})) };
            let client = Client::connect(&url)
                .protocol_version(version)
                .host(Host::new().elicitation(answer));
            let client = client.await.unwrap();

            let sum = client
                .call_tool("add", json!({"a": 1, "b": 2}))
                .await
                .unwrap();
            let asked = client.call_tool("ask", ()).await.unwrap();
            let progress = client
                .call_tool("progress", json!({"n": 3}))
                .on_progress(|_| {});
            progress.await.unwrap();
            let slow = tokio::spawn(client.call_tool("slow", json!({"seconds": 600})).start());
            wait_for_counts(&direct, |counts| counts.active == 1).await;
            slow.abort();
            wait_for_counts(&direct, |counts| counts.cancelled == 1).await;
            client.close().await.unwrap();
            tap.stop().await;

            assert_eq!(
                (sum.text(), asked.text()),
                ("3".into(), "accepted:Ada".into()),
                "{version}"
            );
            let recorded = Recorded::open(&file);
            recorded.assert_lawful();
            let slow = recorded.call("slow");
            assert_eq!(slow.state, ExchangeState::Cancelled, "{version}");
            assert_eq!(slow.cancel.as_ref().unwrap().form, form);
            assert_eq!(recorded.call("progress").notification_count, 3);
            let ask = recorded.call("ask");
            match version {
                MODERN => assert_eq!(recorded.timeline.legs(ask.number).len(), 2),
                _ => assert_eq!(ask.questions.len(), 1),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn changes_arrive_through_the_proxy_in_both_eras() {
    in_time(async {
        for version in [MODERN, LEGACY] {
            let folder = Folder::new();
            let file = folder.file("a.jsonl");
            let (_server, upstream) = Program::http_fixture().await;
            let (tap, url) = Program::proxy(&upstream, &["--record", &file]).await;
            let client = Client::connect(&url)
                .protocol_version(version)
                .await
                .unwrap();

            let filter = ChangeFilter::new().resource("fixture://counter");
            let mut changes = client.subscribe(filter).await.unwrap();
            client.call_tool("touch", ()).await.unwrap();
            let change = changes.next().await.unwrap();
            client.close().await.unwrap();
            // Not before: the session may end before its `resources/unsubscribe` is answered.
            drop(changes);
            tap.stop().await;

            assert_eq!(
                change,
                Some(Change::Resource("fixture://counter".into())),
                "{version}"
            );
            Recorded::open(&file).assert_lawful();
        }
    })
    .await;
}

const SSE_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn call(id: u32) -> String {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "slow", "_meta": meta});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[tokio::test]
async fn events_pass_at_once_and_parts_of_events_too() {
    in_time(async {
        let server = RawServer::bind().await;
        let (_tap, url) = Program::proxy(&server.url, &[]).await;
        let mut client = RawConnection::connect(&url).await;
        client.post(&url, "", &call(1)).await;
        let mut upstream = server.accept().await;
        upstream.read_until(&call(1)).await;

        upstream.send(SSE_HEAD).await;
        client.read_until("\r\n\r\n").await;
        // Each part is sent after the part before it has arrived: a proxy that waits for more would wait for ever.
        for part in [
            "data: {\"jsonrpc\"",
            ":\"2.0\",\"method\":\"x\"}\n\n",
            ": keep-alive\n\n",
        ] {
            upstream.send(&chunk(part)).await;
            client.read_until(part).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_response_ends_the_request_upstream() {
    in_time(async {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let server = RawServer::bind().await;
        let (tap, url) = Program::proxy(&server.url, &["--record", &file]).await;
        let mut client = RawConnection::connect(&url).await;
        client.post(&url, "", &call(1)).await;
        let mut upstream = server.accept().await;
        upstream.read_until(&call(1)).await;

        drop(client);
        upstream.read_to_end().await;
        tap.stop().await;

        let recorded = Recorded::open(&file);
        let cancel = recorded.call("slow").cancel.clone().unwrap();
        assert_eq!(cancel.form, CancelForm::ClosedStream);
    })
    .await;
}

#[tokio::test]
async fn an_upstream_that_breaks_off_ends_the_response_of_the_client() {
    in_time(async {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let server = RawServer::bind().await;
        let (tap, url) = Program::proxy(&server.url, &["--record", &file]).await;
        let mut client = RawConnection::connect(&url).await;
        client.post(&url, "", &call(1)).await;
        let mut upstream = server.accept().await;
        upstream.read_until(&call(1)).await;
        upstream.send(SSE_HEAD).await;
        upstream.send(&chunk(": first\n\n")).await;
        client.read_until(": first").await;

        drop(upstream);
        let rest = client.read_to_end().await;
        tap.stop().await;

        assert!(
            !rest.contains("\r\n0\r\n"),
            "the response is not complete: {rest:?}"
        );
        let recorded = Recorded::open(&file);
        let end = recorded.call("slow").http_end.unwrap();
        assert_eq!((end.by, end.is_complete), (EndedBy::Server, false));
        assert_eq!(recorded.call("slow").state, ExchangeState::Hung);
    })
    .await;
}

#[tokio::test]
async fn a_tap_that_is_stopped_does_not_record_cancels() {
    in_time(async {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let server = RawServer::bind().await;
        let (tap, url) = Program::proxy(&server.url, &["--record", &file]).await;
        let mut client = RawConnection::connect(&url).await;
        client.post(&url, "", &call(1)).await;
        let mut upstream = server.accept().await;
        upstream.read_until(&call(1)).await;

        tap.stop().await;
        upstream.read_to_end().await;

        let recorded = Recorded::open(&file);
        let slow = recorded.call("slow");
        assert_eq!(slow.state, ExchangeState::Hung);
        assert_eq!(slow.http_end.unwrap().by, EndedBy::Tap);
    })
    .await;
}

#[tokio::test]
async fn headers_pass_but_those_of_the_connection_and_the_host_is_that_of_the_upstream() {
    in_time(async {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let server = RawServer::bind().await;
        let added = "X-Added: from the tap";
        let (tap, url) = Program::proxy(&server.url, &["--record", &file, "--header", added]).await;
        let mut client = RawConnection::connect(&url).await;
        let headers = "Mcp-Name: slow\r\nAuthorization: Bearer hunter2\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n";
        client.post(&url, headers, &call(1)).await;
        let mut upstream = server.accept().await;
        let request = upstream.read_until(&call(1)).await.to_ascii_lowercase();
        let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#;
        let length = body.len();
        let response = format!("HTTP/1.1 418 Odd\r\nContent-Type: application/json\r\nX-Own: 2\r\nKeep-Alive: timeout=9\r\nContent-Length: {length}\r\n\r\n{body}");
        upstream.send(&response).await;
        let answer = client.read_until(body).await.to_ascii_lowercase();
        drop(client);
        tap.stop().await;

        let host = server.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
        for kept in ["mcp-name: slow\r\n", "authorization: bearer hunter2\r\n", "x-added: from the tap\r\n", &format!("host: {host}\r\n")] {
            assert!(request.contains(kept), "{kept:?} in {request}");
        }
        assert!(!request.contains("x-hop"), "{request}");
        assert!(answer.starts_with("http/1.1 418 "), "{answer}");
        assert!(answer.contains("x-own: 2\r\n") && !answer.contains("keep-alive"), "{answer}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("hunter2") && text.contains("Bearer redacted-1"), "{text}");
        assert_eq!(Recorded::open(&file).call("slow").state, ExchangeState::Failed(-32000));
    })
    .await;
}

#[tokio::test]
async fn requests_for_a_foreign_host_or_from_a_foreign_page_are_refused() {
    in_time(async {
        let server = RawServer::bind().await;
        let (_tap, url) = Program::proxy(&server.url, &[]).await;
        for (host, origin) in [
            ("evil.example", ""),
            ("127.0.0.1", "Origin: https://evil.example\r\n"),
        ] {
            let mut client = RawConnection::connect(&url).await;
            let request =
                format!("POST /mcp HTTP/1.1\r\nHost: {host}\r\n{origin}Content-Length: 0\r\n\r\n");
            client.send(&request).await;
            let answer = client.read_until("\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_is_a_bad_gateway() {
    in_time(async {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let server = RawServer::bind().await;
        let unreachable = server.url.clone();
        drop(server);
        let (tap, url) = Program::proxy(&unreachable, &["--record", &file]).await;
        let mut client = RawConnection::connect(&url).await;
        client.post(&url, "", &call(1)).await;
        let answer = client.read_until("failed to reach").await;
        drop(client);
        tap.stop().await;

        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let recorded = Recorded::open(&file);
        let (_, http) = recorded.timeline.http_exchanges().next().unwrap();
        let end = http.end.unwrap();
        assert_eq!((http.status, end.by), (Some(502), EndedBy::Tap));
    })
    .await;
}

#[tokio::test]
async fn clients_of_http2_are_served_and_a_reset_stream_is_a_cancel() {
    in_time(async {
        let folder = Folder::new();
        let file = folder.file("a.jsonl");
        let server = RawServer::bind().await;
        let (tap, url) = Program::proxy(&server.url, &["--record", &file]).await;
        let address = url
            .strip_prefix("http://")
            .unwrap()
            .split('/')
            .next()
            .unwrap();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let executor = hyper_util::rt::TokioExecutor::new();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let request = ::http::Request::post(&url)
            .body(http_body_util::Full::new(bytes::Bytes::from(call(1))));
        let response = tokio::spawn(sender.send_request(request.unwrap()));
        let mut upstream = server.accept().await;
        upstream.read_until("slow").await;

        response.abort();
        upstream.read_to_end().await;
        drop(sender);
        connection.abort();
        tap.stop().await;

        let cancel = Recorded::open(&file).call("slow").cancel.clone().unwrap();
        assert_eq!(cancel.form, CancelForm::ClosedStream);
    })
    .await;
}

#[tokio::test]
async fn a_server_behind_tls_is_reached_over_http2_and_a_dropped_call_stops_its_handler() {
    in_time(async {
        let folder = Folder::new();
        let (file, authority) = (folder.file("a.jsonl"), folder.file("authority.pem"));
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
        std::fs::write(&authority, &certificate).unwrap();
        let fixture = Fixture::new();
        let mut counts = fixture.counters().watch();
        let bound = fixture.server().http().bind("127.0.0.1:0").await.unwrap();
        let bound = bound.tls(TlsConfig::from_pem(certificate, key).unwrap());
        let upstream = format!("https://localhost:{}/mcp", bound.local_addr().port());
        let server = tokio::spawn(bound.serve());

        let arguments = ["tap", &upstream, "--http", "127.0.0.1:0", "--record", &file];
        let mut tap = Program::start_with(&arguments, &[("SSL_CERT_FILE", &authority)]);
        let url = tap.stderr_line("bowline: listening on ").await;
        let client = Client::connect(&url)
            .protocol_version(MODERN)
            .await
            .unwrap();
        let slow = tokio::spawn(client.call_tool("slow", json!({"seconds": 600})).start());
        counts.wait_for(|counts| counts.active == 1).await.unwrap();
        slow.abort();
        counts
            .wait_for(|counts| counts.cancelled == 1)
            .await
            .unwrap();
        client.close().await.unwrap();
        tap.stop().await;
        server.abort();

        let recorded = Recorded::open(&file);
        recorded.assert_lawful();
        let cancel = recorded.call("slow").cancel.clone().unwrap();
        assert_eq!(cancel.form, CancelForm::ClosedStream);
    })
    .await;
}

#[tokio::test]
async fn the_view_is_json_if_asked_for() {
    in_time(async {
        let server = RawServer::bind().await;
        let (mut tap, url) = Program::proxy(&server.url, &["--json"]).await;
        let mut client = RawConnection::connect(&url).await;
        client.post(&url, "", &call(7)).await;
        let line = loop {
            let line = tap.stderr_line("").await;
            if line.contains("tools/call") {
                break line;
            }
        };
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["kind"], "request");
        assert_eq!(value["message"]["id"], 7);
        assert_eq!(value["version"], MODERN);
    })
    .await;
}
