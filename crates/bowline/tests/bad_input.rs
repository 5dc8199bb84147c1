//! Bad input costs only itself: it gets the error that JSON-RPC names, or is ignored where it must be,
//! and the good message right behind it is served as if nothing had happened.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that meets the unexpected has failed"
)]

use std::future::IntoFuture;
use std::time::Duration;

use bowline::wire::Lines;
use bowline::{CallToolResult, Client, Error, Server, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::time::timeout;

const ERAS: [&str; 5] = [
    "2026-07-28",
    "2025-11-25",
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];

/// What a server says to a line: the id and code of an error.
type Refusal = (Option<Value>, i64);

#[tokio::test(start_paused = true)]
async fn a_line_that_is_not_json_gets_a_parse_error_without_an_id() {
    let control = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\0b\"}";
    let behind = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}\0";
    let lines: [&[u8]; 11] = [
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/list""#,
        br#"{"jsonrpc":"2.0","id":1,"meth"#,
        b"{",
        b"nul",
        b"garbage",
        b"\0\0\0",
        control.as_bytes(),
        behind.as_bytes(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}",
        b"\xc3\x28",
        br#"{"jsonrpc":"2.0","id":1,"method":"x"} {"jsonrpc":"2.0"}"#,
    ];

    for line in lines {
        assert_refused_in_every_era(line, (None, -32700)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_json_but_no_message_gets_an_invalid_request_without_an_id() {
    for line in [
        "7",
        "1.5",
        "\"text\"",
        "null",
        "true",
        "{}",
        r#"{"method":"x"}"#,
    ] {
        assert_refused_in_every_era(line.as_bytes(), (None, -32600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_of_the_wrong_type_gets_an_invalid_request_with_the_id() {
    let wrong = ["null", "true", "7", "1.5", "[]", "{}", "\"text\""];
    for value in wrong {
        let version = format!(r#"{{"jsonrpc":{value},"id":1,"method":"x"}}"#);
        assert_refused_in_every_era(version.as_bytes(), (Some(json!(1)), -32600)).await;
        if value != "\"text\"" {
            let method = format!(r#"{{"jsonrpc":"2.0","id":1,"method":{value}}}"#);
            assert_refused_in_every_era(method.as_bytes(), (Some(json!(1)), -32600)).await;
        }
        if value != "{}" {
            let params = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{value}}}"#);
            assert_refused_in_every_era(params.as_bytes(), (Some(json!(1)), -32600)).await;
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
        assert_refused_in_every_era(line.as_bytes(), (None, -32600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_stands_twice_gets_an_invalid_request_with_the_id_if_that_is_certain() {
    let twice = [
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

    for (line, id) in twice {
        assert_refused_in_every_era(line.as_bytes(), (id, -32600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_answer_is_ignored() {
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
        r#"{"jsonrpc":"2.0","method":"notifications/nobody/knows"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[]}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#,
    ];

    for version in ERAS {
        let mut pipe = Pipe::to_server(version).await;
        for line in lines {
            pipe.write(line.as_bytes()).await;
            pipe.assert_good_request_is_answered().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_refused_in_an_era_without_batches() {
    for version in ERAS.into_iter().filter(|version| *version != "2025-03-26") {
        let mut pipe = Pipe::to_server(version).await;
        for (batch, code) in [
            ("[]", -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
            ("[[[[", -32700),
        ] {
            pipe.write(batch.as_bytes()).await;
            assert_eq!(pipe.refusal().await, (None, code), "{batch} at {version}");
            pipe.assert_good_request_is_answered().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_the_era_of_batches_a_bad_part_costs_only_itself() {
    let mut pipe = Pipe::to_server("2025-03-26").await;

    pipe.write(b"[]").await;
    assert_eq!(pipe.refusal().await, (None, -32600));
    pipe.write(b"[7").await;
    assert_eq!(pipe.refusal().await, (None, -32700));
    pipe.write(br#"[7,{"jsonrpc":"2.0","id":"b","method":"ping"}]"#)
        .await;
    assert_eq!(pipe.refusal().await, (None, -32600));
    assert_eq!(pipe.read().await["id"], "b");
    pipe.assert_good_request_is_answered().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_with_more_messages_than_the_limit_is_refused_and_costs_only_itself() {
    let mut pipe = Pipe::to_server("2025-03-26").await;
    let most = bowline::Limits::default().batch_messages;
    let batch = |length: usize| {
        let ping = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let pings: Vec<_> = (0..length).map(ping).collect();
        format!("[{}]", pings.join(","))
    };

    pipe.write(batch(most + 1).as_bytes()).await;
    assert_eq!(pipe.refusal().await, (None, -32600));

    pipe.write(batch(most).as_bytes()).await;
    for _ in 0..most {
        let answer = pipe.read().await;
        assert!(answer["result"].is_object(), "{answer}");
    }
    pipe.assert_good_request_is_answered().await;
}

#[tokio::test(start_paused = true)]
async fn deep_nesting_costs_only_itself() {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let extra = format!(r#"{{"jsonrpc":"2.0","id":1,"method":7,"x":{open}{close}}}"#);
    let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    let params = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{objects}}}"#);
    let id = format!(r#"{{"jsonrpc":"2.0","id":{open}{close},"method":"x"}}"#);
    let unclosed = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{open}"#);

    for version in ERAS {
        let mut pipe = Pipe::to_server(version).await;
        for (line, expected) in [
            (&extra, (Some(json!(1)), -32600)),
            (&id, (None, -32600)),
            (&unclosed, (None, -32700)),
        ] {
            pipe.write(line.as_bytes()).await;
            assert_eq!(pipe.refusal().await, expected, "at {version}");
            pipe.assert_good_request_is_answered().await;
        }
        pipe.write(params.as_bytes()).await;
        assert_eq!(pipe.refusal().await.0, Some(json!(1)));
        pipe.assert_good_request_is_answered().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_line_is_served_and_one_over_the_limit_is_refused() {
    let mut pipe = Pipe::to_server("2026-07-28").await;
    let mut long = good_request("2026-07-28", "long");
    long["params"]["arguments"] = json!({"text": "x".repeat(10 * 1024 * 1024)});

    pipe.write(long.to_string().as_bytes()).await;
    assert_eq!(pipe.read().await["result"]["content"][0]["text"], "good");
    long["params"]["arguments"] = json!({"text": "x".repeat(MAX_LINE)});
    pipe.write(long.to_string().as_bytes()).await;

    assert_eq!(pipe.refusal().await, (None, -32600));
    pipe.assert_good_request_is_answered().await;
}

#[tokio::test(start_paused = true)]
async fn a_line_may_end_in_crlf() {
    for version in ERAS {
        let mut pipe = Pipe::to_server(version).await;
        let request = good_request(version, "crlf").to_string();

        pipe.write(format!("\r\n{request}\r").as_bytes()).await;

        assert_eq!(pipe.read().await["id"], "crlf");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_a_request_on_its_way_the_next_one_is_answered() {
    for version in ERAS {
        let mut pipe = Pipe::to_server(version).await;
        let sound = good_request(version, "mutant").to_string();
        for seed in 1..=400 {
            let mutant = Random(seed).mutate(sound.as_bytes());
            pipe.write(&mutant).await;
            pipe.assert_good_request_is_answered_behind(&format!(
                "seed {seed} at {version}: {}",
                String::from_utf8_lossy(&mutant)
            ))
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_answer_fails_the_call_it_names_and_no_other() {
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
        let (client, mut pipe) = Pipe::to_client(version).await;
        let other = client.raw("x/other", ()).id("other").start();
        for line in lines {
            let mine = client.raw("x/mine", ()).id("mine").start();
            pipe.hear("mine").await;
            pipe.write(line.as_bytes()).await;
            let ended = mine.await;
            assert!(
                matches!(ended, Err(Error::Protocol { .. })),
                "{line}: {ended:?}"
            );
        }

        pipe.answer("other").await;
        assert!(other.await.is_ok());
        assert!(client.peer().unwrap().is_idle());
    }
}

#[tokio::test(start_paused = true)]
async fn garbage_that_names_no_call_fails_none() {
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
        let (client, mut pipe) = Pipe::to_client(version).await;
        let mine = client.raw("x/mine", ()).id("mine").start();
        pipe.hear("mine").await;
        for line in lines {
            pipe.write(line).await;
        }

        pipe.answer("mine").await;

        assert!(mine.await.is_ok(), "at {version}");
        let next = client.raw("x/next", ()).id("next").start();
        pipe.hear("next").await;
        pipe.answer("next").await;
        assert!(next.await.is_ok(), "at {version}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_an_answer_on_its_way_other_calls_get_theirs() {
    for version in ERAS {
        let (client, mut pipe) = Pipe::to_client(version).await;
        let sound = br#"{"jsonrpc":"2.0","id":"mine","result":{"resultType":"complete","a":[1]}}"#;
        for seed in 1..=400 {
            let mutant = Random(seed).mutate(sound);
            let context = format!(
                "seed {seed} at {version}: {}",
                String::from_utf8_lossy(&mutant)
            );
            let mine = client.raw("x/mine", ()).id("mine");
            let mine = mine.timeout(Duration::from_millis(5)).start();
            let other = client.raw("x/other", ()).id("other").start();

            pipe.hear("other").await;
            pipe.write(&mutant).await;
            pipe.answer("other").await;

            assert!(other.await.is_ok(), "{context}");
            let _either_way = timeout(Duration::from_secs(1), mine).await.expect(&context);
            assert!(client.peer().unwrap().sizes().pending == 0, "{context}");
        }
    }
}

/// Expects `line` to be refused like this, and the next request to be served, in every era.
async fn assert_refused_in_every_era(line: &[u8], expected: Refusal) {
    for version in ERAS {
        let mut pipe = Pipe::to_server(version).await;
        pipe.write(line).await;
        let text = String::from_utf8_lossy(line);
        assert_eq!(pipe.refusal().await, expected, "{text} at {version}");
        pipe.assert_good_request_is_answered().await;
    }
}

/// The test's end of a byte stream.
struct Pipe {
    version: &'static str,
    stream: BufReader<DuplexStream>,
    asked: usize,
}

impl Pipe {
    async fn to_server(version: &'static str) -> Self {
        let good = Tool::raw("good", json!({"type": "object"}), async |_, _| {
            Ok(CallToolResult::text("good"))
        });
        let server = Server::new("sturdy", "1.0.0").tool(good);
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(server.serve(lines(far)));
        let mut pipe = Self::new(version, near);
        if version != ERAS[0] {
            let opening = json!({
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            });
            let opening =
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening});
            pipe.write(opening.to_string().as_bytes()).await;
            assert_eq!(pipe.read().await["result"]["protocolVersion"], version);
            pipe.write(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
                .await;
        }
        pipe
    }

    async fn to_client(version: &'static str) -> (Client, Self) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let connect = Client::over(lines(far).max_line(MAX_LINE_OF_CLIENT)).speaking(version);
        let mut pipe = Self::new(version, near);
        let (client, ()) = tokio::join!(connect.into_future(), async {
            if version != ERAS[0] {
                let id = pipe.read().await["id"].clone();
                let result = json!({
                    "protocolVersion": version,
                    "capabilities": {},
                    "serverInfo": {"name": "test", "version": "1"},
                });
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
                pipe.write(answer.to_string().as_bytes()).await;
            }
        });
        (client.unwrap(), pipe)
    }

    fn new(version: &'static str, stream: DuplexStream) -> Self {
        let (stream, asked) = (BufReader::new(stream), 0);
        Self {
            version,
            stream,
            asked,
        }
    }

    async fn write(&mut self, line: &[u8]) {
        self.stream.write_all(line).await.unwrap();
        self.stream.write_all(b"\n").await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let mut line = String::new();
        // The clock stands still while anything moves, so this only rings if nothing does any more.
        let reading = timeout(Duration::from_secs(60), self.stream.read_line(&mut line));
        let read = reading.await.expect("nothing is said any more").unwrap();
        assert!(read > 0, "the connection is dead");
        serde_json::from_str(&line).unwrap()
    }

    /// Waits for the request with this id.
    async fn hear(&mut self, id: &str) {
        loop {
            let frame = self.read().await;
            if frame["id"] == id && frame.get("method").is_some() {
                return;
            }
        }
    }

    async fn refusal(&mut self) -> Refusal {
        let answer = self.read().await;
        let code = answer["error"]["code"].as_i64();
        let code = code.unwrap_or_else(|| panic!("expected an error, saw {answer}"));
        (answer.get("id").cloned(), code)
    }

    async fn answer(&mut self, id: &str) {
        let result = json!({"resultType": "complete"});
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        self.write(answer.to_string().as_bytes()).await;
    }

    async fn assert_good_request_is_answered(&mut self) {
        let id = self.ask().await;
        assert_eq!(self.read().await["id"], id);
    }

    /// As above, whatever else was said before.
    async fn assert_good_request_is_answered_behind(&mut self, context: &str) {
        let id = self.ask().await;
        loop {
            let mut line = String::new();
            let reading = timeout(Duration::from_secs(60), self.stream.read_line(&mut line)).await;
            assert!(matches!(reading, Ok(Ok(1..))), "no answer behind {context}");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id.as_str() {
                assert!(answer.get("result").is_some(), "{answer} behind {context}");
                return;
            }
        }
    }

    async fn ask(&mut self) -> String {
        self.asked += 1;
        let id = format!("good {}", self.asked);
        let request = good_request(self.version, &id).to_string();
        self.write(request.as_bytes()).await;
        id
    }
}

fn lines(stream: DuplexStream) -> Lines {
    let (read, write) = tokio::io::split(stream);
    Lines::new(read, write).max_line(MAX_LINE)
}

fn good_request(version: &str, id: &str) -> Value {
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

/// Numbers that look random and are the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % limit
    }

    /// Damages `sound` in one to four places.
    fn mutate(mut self, sound: &[u8]) -> Vec<u8> {
        self.0 = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut bytes = sound.to_vec();
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, SPICE[self.below(SPICE.len())]),
                3 => bytes[at] = SPICE[self.below(SPICE.len())],
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

/// What hurts most.
const SPICE: &[u8] = b"\0\n\r\"\\{}[],:0-9eE.+tfn \xff\xc3\x80";

const MAX_LINE: usize = 12 * 1024 * 1024;
const MAX_LINE_OF_CLIENT: usize = 16 * 1024;
