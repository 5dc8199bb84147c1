//! Malformed input gets the error that JSON-RPC defines, or is ignored where it must be, and does not affect the
//! valid message after it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::future::IntoFuture;
use std::time::Duration;

use bowline::wire::Lines;
use bowline::{CallToolResult, Client, Error, Server, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::time::{Instant, timeout};

const ERAS: [&str; 5] = [
    "2026-07-28",
    "2025-11-25",
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];

/// The id and the code of an error response.
type ErrorReply = (Option<Value>, i64);

#[tokio::test(start_paused = true)]
async fn a_line_that_is_not_json_gets_a_parse_error_without_an_id() {
    let control = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\0b\"}";
    let trailing = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}\0";
    let lines: [&[u8]; 11] = [
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/list""#,
        br#"{"jsonrpc":"2.0","id":1,"meth"#,
        b"{",
        b"nul",
        b"garbage",
        b"\0\0\0",
        control.as_bytes(),
        trailing.as_bytes(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}",
        b"\xc3\x28",
        br#"{"jsonrpc":"2.0","id":1,"method":"x"} {"jsonrpc":"2.0"}"#,
    ];

    for line in lines {
        assert_error_in_every_era(line, (None, -32700)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_json_but_not_a_message_gets_an_invalid_request_without_an_id() {
    for line in [
        "7",
        "1.5",
        "\"text\"",
        "null",
        "true",
        "{}",
        r#"{"method":"x"}"#,
    ] {
        assert_error_in_every_era(line.as_bytes(), (None, -32600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_of_the_wrong_type_gets_an_invalid_request_with_the_id() {
    let wrong = ["null", "true", "7", "1.5", "[]", "{}", "\"text\""];
    for value in wrong {
        let version = format!(r#"{{"jsonrpc":{value},"id":1,"method":"x"}}"#);
        assert_error_in_every_era(version.as_bytes(), (Some(json!(1)), -32600)).await;
        if value != "\"text\"" {
            let method = format!(r#"{{"jsonrpc":"2.0","id":1,"method":{value}}}"#);
            assert_error_in_every_era(method.as_bytes(), (Some(json!(1)), -32600)).await;
        }
        if value != "{}" {
            let params = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{value}}}"#);
            assert_error_in_every_era(params.as_bytes(), (Some(json!(1)), -32600)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_of_the_wrong_type_gets_an_invalid_request_without_an_id() {
    for id in [
        "null",
        "true",
        "1.5",
        "1.0",
        "[]",
        "[1]",
        "{}",
        "99999999999999999999",
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        assert_error_in_every_era(line.as_bytes(), (None, -32600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_member_gets_an_invalid_request_with_the_id_if_it_is_unambiguous() {
    let duplicates = [
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"x"}"#, None),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}"#,
            Some(json!(1)),
        ),
        (
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"x"}"#,
            Some(json!(1)),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{},"params":{}}"#,
            Some(json!(1)),
        ),
    ];

    for (line, id) in duplicates {
        assert_error_in_every_era(line.as_bytes(), (id, -32600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn blank_lines_and_unanswerable_messages_are_ignored() {
    let lines = [
        "",
        "   \t ",
        "\r",
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":99,"error":{"code":-32603,"message":"?"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}"#,
        r#"{"jsonrpc":"2.0","id":99,"error":7}"#,
        r#"{"jsonrpc":"2.0","id":[],"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{},"error":{"code":1,"message":"?"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/acme/unknown"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[]}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#,
    ];

    for version in ERAS {
        let mut connection = RawConnection::to_server(version).await;
        for line in lines {
            connection.write(line.as_bytes()).await;
            connection.assert_valid_request_is_answered().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_rejected_in_revisions_without_batches() {
    for version in ERAS.into_iter().filter(|version| *version != "2025-03-26") {
        let mut connection = RawConnection::to_server(version).await;
        for (batch, code) in [
            ("[]", -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
            ("[[[[", -32700),
        ] {
            connection.write(batch.as_bytes()).await;
            assert_eq!(
                connection.read_error().await,
                (None, code),
                "{batch} at {version}"
            );
            connection.assert_valid_request_is_answered().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_batch_member_fails_only_itself() {
    let mut connection = RawConnection::to_server("2025-03-26").await;

    connection.write(b"[]").await;
    assert_eq!(connection.read_error().await, (None, -32600));
    connection.write(b"[7").await;
    assert_eq!(connection.read_error().await, (None, -32700));
    connection
        .write(br#"[7,{"jsonrpc":"2.0","id":"b","method":"ping"}]"#)
        .await;
    assert_eq!(connection.read_error().await, (None, -32600));
    assert_eq!(connection.read().await["id"], "b");
    connection.assert_valid_request_is_answered().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_above_the_message_limit_is_rejected_and_the_next_one_is_served() {
    let mut connection = RawConnection::to_server("2025-03-26").await;
    let most = bowline::Limits::default().batch_messages;
    let batch = |length: usize| {
        let ping = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let pings: Vec<_> = (0..length).map(ping).collect();
        format!("[{}]", pings.join(","))
    };

    connection.write(batch(most + 1).as_bytes()).await;
    assert_eq!(connection.read_error().await, (None, -32600));

    connection.write(batch(most).as_bytes()).await;
    for _ in 0..most {
        let answer = connection.read().await;
        assert!(answer["result"].is_object(), "{answer}");
    }
    connection.assert_valid_request_is_answered().await;
}

#[tokio::test(start_paused = true)]
async fn a_deeply_nested_line_is_rejected_and_the_next_request_is_served() {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let extra = format!(r#"{{"jsonrpc":"2.0","id":1,"method":7,"x":{open}{close}}}"#);
    let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    let params = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{objects}}}"#);
    let id = format!(r#"{{"jsonrpc":"2.0","id":{open}{close},"method":"x"}}"#);
    let unclosed = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{open}"#);

    for version in ERAS {
        let mut connection = RawConnection::to_server(version).await;
        for (line, expected) in [
            (&extra, (Some(json!(1)), -32600)),
            (&id, (None, -32600)),
            (&unclosed, (None, -32700)),
        ] {
            connection.write(line.as_bytes()).await;
            assert_eq!(connection.read_error().await, expected, "at {version}");
            connection.assert_valid_request_is_answered().await;
        }
        connection.write(params.as_bytes()).await;
        assert_eq!(connection.read_error().await.0, Some(json!(1)));
        connection.assert_valid_request_is_answered().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_line_is_served_and_one_above_the_limit_is_rejected() {
    let mut connection = RawConnection::to_server("2026-07-28").await;
    let mut long = valid_request("2026-07-28", "long");
    long["params"]["arguments"] = json!({"text": "x".repeat(10 * 1024 * 1024)});

    connection.write(long.to_string().as_bytes()).await;
    assert_eq!(
        connection.read().await["result"]["content"][0]["text"],
        "good"
    );
    long["params"]["arguments"] = json!({"text": "x".repeat(MAX_LINE)});
    connection.write(long.to_string().as_bytes()).await;

    assert_eq!(connection.read_error().await, (None, -32600));
    connection.assert_valid_request_is_answered().await;
}

#[tokio::test(start_paused = true)]
async fn a_line_may_end_in_crlf() {
    for version in ERAS {
        let mut connection = RawConnection::to_server(version).await;
        let request = valid_request(version, "crlf").to_string();

        connection
            .write(format!("\r\n{request}\r").as_bytes())
            .await;

        assert_eq!(connection.read().await["id"], "crlf");
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrupted_request_does_not_affect_the_next_one() {
    for version in ERAS {
        let mut connection = RawConnection::to_server(version).await;
        let valid = valid_request(version, "corrupted").to_string();
        for seed in 1..=400 {
            let corrupted = XorShift(seed).corrupt(valid.as_bytes());
            connection.write(&corrupted).await;
            connection
                .assert_valid_request_is_answered_after(&format!(
                    "seed {seed} at {version}: {}",
                    String::from_utf8_lossy(&corrupted)
                ))
                .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_response_fails_only_the_call_it_names() {
    let lines = [
        r#"{"jsonrpc":"2.0","id":"mine","error":7}"#,
        r#"{"jsonrpc":"2.0","id":"mine","error":{"code":"x","message":"y"}}"#,
        r#"{"jsonrpc":"2.0","id":"mine","result":{},"error":{"code":1,"message":"y"}}"#,
        r#"{"jsonrpc":"2.0","id":"mine","result":{},"result":{}}"#,
        r#"{"jsonrpc":"1.0","id":"mine","result":{}}"#,
        r#"{"id":"mine","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"mine","result":[]}"#,
        r#"{"jsonrpc":"2.0","id":"mine","result":null}"#,
        r#"{"jsonrpc":"2.0","id":"mine","result":7}"#,
    ];

    for version in ERAS {
        let (client, mut connection) = RawConnection::to_client(version).await;
        let other = client.request_raw("x/other", ()).id("other").start();
        for line in lines {
            let mine = client.request_raw("x/mine", ()).id("mine").start();
            connection.wait_for_request("mine").await;
            connection.write(line.as_bytes()).await;
            let ended = mine.await;
            assert!(
                matches!(ended, Err(Error::Protocol { .. })),
                "{line}: {ended:?}"
            );
        }

        connection.answer("other").await;
        assert!(other.await.is_ok());
        assert!(client.peer().unwrap().is_idle());
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_above_the_limit_fails_the_call_it_names_at_once() {
    let long = "x".repeat(MAX_LINE_OF_CLIENT * 3);
    let lines = [
        format!(r#"{{"jsonrpc":"2.0","id":"mine","result":{{"text":"{long}"}}}}"#),
        format!(r#"{{"result":{{"text":"{long}"}},"jsonrpc":"2.0","id":"mine"}}"#),
    ];

    for version in ERAS {
        let (client, mut connection) = RawConnection::to_client(version).await;
        let other = client.request_raw("x/other", ()).id("other").start();
        for line in &lines {
            let mine = client.request_raw("x/mine", ()).id("mine").start();
            connection.wait_for_request("mine").await;
            let before = Instant::now();

            let (ended, ()) = tokio::join!(mine, connection.write(line.as_bytes()));

            let error = ended.unwrap_err();
            assert!(error.to_string().contains("exceeds"), "{error}");
            assert_eq!(before.elapsed(), Duration::ZERO);
        }

        connection.answer("other").await;
        assert!(other.await.is_ok());
        assert!(client.peer().unwrap().is_idle());
    }
}

#[tokio::test(start_paused = true)]
async fn garbage_without_a_request_id_fails_no_call() {
    let too_long = vec![b'x'; MAX_LINE_OF_CLIENT + 1];
    let lines: [&[u8]; 9] = [
        b"garbage",
        b"{",
        b"\xff\xff",
        b"\0",
        b"[]",
        b"null",
        br#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
        br#"{"jsonrpc":"2.0","id":true,"result":{}}"#,
        &too_long,
    ];

    for version in ERAS {
        let (client, mut connection) = RawConnection::to_client(version).await;
        let mine = client.request_raw("x/mine", ()).id("mine").start();
        connection.wait_for_request("mine").await;
        for line in lines {
            connection.write(line).await;
        }

        connection.answer("mine").await;

        assert!(mine.await.is_ok(), "at {version}");
        let next = client.request_raw("x/next", ()).id("next").start();
        connection.wait_for_request("next").await;
        connection.answer("next").await;
        assert!(next.await.is_ok(), "at {version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrupted_response_does_not_affect_other_calls() {
    for version in ERAS {
        let (client, mut connection) = RawConnection::to_client(version).await;
        let valid = br#"{"jsonrpc":"2.0","id":"mine","result":{"resultType":"complete","a":[1]}}"#;
        for seed in 1..=400 {
            let corrupted = XorShift(seed).corrupt(valid);
            let context = format!(
                "seed {seed} at {version}: {}",
                String::from_utf8_lossy(&corrupted)
            );
            let mine = client.request_raw("x/mine", ()).id("mine");
            let mine = mine.idle_timeout(Duration::from_millis(5)).start();
            let other = client.request_raw("x/other", ()).id("other").start();

            connection.wait_for_request("other").await;
            connection.write(&corrupted).await;
            connection.answer("other").await;

            assert!(other.await.is_ok(), "{context}");
            let _outcome = timeout(Duration::from_secs(1), mine).await.expect(&context);
            assert!(client.peer().unwrap().sizes().pending == 0, "{context}");
        }
    }
}

/// Expects this error for `line`, and a result for the next request, in every era.
async fn assert_error_in_every_era(line: &[u8], expected: ErrorReply) {
    for version in ERAS {
        let mut connection = RawConnection::to_server(version).await;
        connection.write(line).await;
        let text = String::from_utf8_lossy(line);
        assert_eq!(
            connection.read_error().await,
            expected,
            "{text} at {version}"
        );
        connection.assert_valid_request_is_answered().await;
    }
}

/// A raw byte stream to a server or a client.
struct RawConnection {
    version: &'static str,
    stream: BufReader<DuplexStream>,
    requests_sent: usize,
}

impl RawConnection {
    async fn to_server(version: &'static str) -> Self {
        let good = Tool::raw("good", json!({"type": "object"}), async |_, _| {
            Ok(CallToolResult::text("good"))
        });
        let server = Server::new("test", "1.0.0").tool(good);
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(server.serve(lines(far)));
        let mut connection = Self::new(version, near);
        if version != ERAS[0] {
            let handshake = json!({
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            });
            let handshake =
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": handshake});
            connection.write(handshake.to_string().as_bytes()).await;
            assert_eq!(
                connection.read().await["result"]["protocolVersion"],
                version
            );
            connection
                .write(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
                .await;
        }
        connection
    }

    async fn to_client(version: &'static str) -> (Client, Self) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let connect =
            Client::from_wire(lines(far).max_line(MAX_LINE_OF_CLIENT)).protocol_version(version);
        let mut connection = Self::new(version, near);
        let (client, ()) = tokio::join!(connect.into_future(), async {
            if version != ERAS[0] {
                let id = connection.read().await["id"].clone();
                let result = json!({
                    "protocolVersion": version,
                    "capabilities": {},
                    "serverInfo": {"name": "test", "version": "1"},
                });
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
                connection.write(answer.to_string().as_bytes()).await;
            }
        });
        (client.unwrap(), connection)
    }

    fn new(version: &'static str, stream: DuplexStream) -> Self {
        let (stream, requests_sent) = (BufReader::new(stream), 0);
        Self {
            version,
            stream,
            requests_sent,
        }
    }

    async fn write(&mut self, line: &[u8]) {
        self.stream.write_all(line).await.unwrap();
        self.stream.write_all(b"\n").await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let mut line = String::new();
        // The paused clock advances only when every task is idle, so this fires only if no message will come.
        let reading = timeout(Duration::from_secs(60), self.stream.read_line(&mut line));
        let read = reading.await.expect("no message arrived").unwrap();
        assert!(read > 0, "the connection was closed");
        serde_json::from_str(&line).unwrap()
    }

    /// Waits for the request with this id.
    async fn wait_for_request(&mut self, id: &str) {
        loop {
            let frame = self.read().await;
            if frame["id"] == id && frame.get("method").is_some() {
                return;
            }
        }
    }

    async fn read_error(&mut self) -> ErrorReply {
        let answer = self.read().await;
        let code = answer["error"]["code"].as_i64();
        let code = code.unwrap_or_else(|| panic!("expected an error, got {answer}"));
        (answer.get("id").cloned(), code)
    }

    async fn answer(&mut self, id: &str) {
        let result = json!({"resultType": "complete"});
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        self.write(answer.to_string().as_bytes()).await;
    }

    async fn assert_valid_request_is_answered(&mut self) {
        let id = self.send_valid_request().await;
        assert_eq!(self.read().await["id"], id);
    }

    /// The same, skipping other messages.
    async fn assert_valid_request_is_answered_after(&mut self, context: &str) {
        let id = self.send_valid_request().await;
        loop {
            let mut line = String::new();
            let reading = timeout(Duration::from_secs(60), self.stream.read_line(&mut line)).await;
            assert!(
                matches!(reading, Ok(Ok(1..))),
                "no response after {context}"
            );
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id.as_str() {
                assert!(answer.get("result").is_some(), "{answer} after {context}");
                return;
            }
        }
    }

    async fn send_valid_request(&mut self) -> String {
        self.requests_sent += 1;
        let id = format!("good {}", self.requests_sent);
        let request = valid_request(self.version, &id).to_string();
        self.write(request.as_bytes()).await;
        id
    }
}

fn lines(stream: DuplexStream) -> Lines {
    let (read, write) = tokio::io::split(stream);
    Lines::new(read, write).max_line(MAX_LINE)
}

fn valid_request(version: &str, id: &str) -> Value {
    let mut params = json!({"name": "good", "arguments": {}});
    if version == ERAS[0] {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// A deterministic xorshift generator.
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % limit
    }

    /// Corrupts `valid` in one to four places.
    fn corrupt(mut self, valid: &[u8]) -> Vec<u8> {
        self.0 = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, CORRUPTING_BYTES[self.below(CORRUPTING_BYTES.len())]),
                3 => bytes[at] = CORRUPTING_BYTES[self.below(CORRUPTING_BYTES.len())],
                4 => bytes.truncate(at.max(1)),
                _ => {
                    let end = (at + self.below(20)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
        bytes
    }
}

/// Bytes that are likely to break a parser.
const CORRUPTING_BYTES: &[u8] = b"\0\n\r\"\\{}[],:0-9eE.+tfn \xff\xc3\x80";

const MAX_LINE: usize = 12 * 1024 * 1024;
const MAX_LINE_OF_CLIENT: usize = 16 * 1024;
