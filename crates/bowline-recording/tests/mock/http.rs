//! Recordings of HTTP, and mocks over HTTP.

use std::time::Duration;

use bowline::{Client, Json};
use bowline_recording::{
    DropAfter, EndedBy, Event, EventKind, HttpHeader, Mock, Recording, Side, Transport,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::recorded::{ERAS, Era, Recorded, User, accept, builder, call, content, recording};

/// A recording over HTTP while it is written.
#[derive(Default)]
struct RecordedHttp {
    events: Vec<Event>,
    exchanges: u64,
}

impl RecordedHttp {
    fn event(&mut self, exchange: u64, kind: EventKind) {
        let at = Duration::from_secs(self.events.len() as u64);
        // Each request on a connection of its own, as some clients do.
        self.events
            .push(Event::new(at, exchange, kind).exchange(exchange));
    }

    fn request(&mut self, method: &str, headers: &[(&str, &str)]) -> u64 {
        self.exchanges += 1;
        let headers = headers
            .iter()
            .map(|&(name, value)| HttpHeader(name.into(), value.into()));
        let kind = EventKind::Request {
            method: method.into(),
            path: "/mcp".into(),
            headers: headers.collect(),
        };
        self.event(self.exchanges, kind);
        self.exchanges
    }

    fn respond(&mut self, exchange: u64, status: u16, headers: &[(&str, &str)]) {
        let headers = headers
            .iter()
            .map(|&(name, value)| HttpHeader(name.into(), value.into()));
        let headers = headers.collect();
        self.event(exchange, EventKind::Response { status, headers });
    }

    fn message(&mut self, exchange: u64, from: Side, message: Value) {
        let message = Json::from(message);
        self.event(exchange, EventKind::Message { from, message });
    }

    fn end(&mut self, exchange: u64, by: EndedBy, complete: bool) {
        self.event(exchange, EventKind::End { by, complete });
    }

    fn recording(self) -> Recording {
        recording(Transport::Http, self.events)
    }
}

/// A legacy client, whose answer to a question is posted, while another call is in flight.
fn legacy_question() -> Recording {
    let session = [("mcp-session-id", "redacted")];
    let json = [
        ("content-type", "application/json"),
        ("mcp-session-id", "redacted"),
    ];
    let sse = [("content-type", "text/event-stream")];
    let mut recorded = RecordedHttp::default();
    let opened = recorded.request("POST", &[]);
    recorded.message(opened, Side::Client, json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "c", "version": "1"}},
    }));
    recorded.respond(opened, 200, &json);
    recorded.message(opened, Side::Server, json!({
        "jsonrpc": "2.0", "id": 0, "result": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"},
        },
    }));
    recorded.end(opened, EndedBy::Server, true);
    let ask = recorded.request("POST", &session);
    recorded.message(ask, Side::Client, json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call("ask", json!({}))}));
    let other = recorded.request("POST", &session);
    recorded.message(other, Side::Client, json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call("slow", json!({}))}));
    recorded.respond(ask, 200, &sse);
    recorded.respond(other, 200, &sse);
    recorded.message(ask, Side::Server, json!({
        "jsonrpc": "2.0", "id": 0, "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
    }));
    let posted = recorded.request("POST", &session);
    recorded.message(
        posted,
        Side::Client,
        json!({"jsonrpc": "2.0", "id": 0, "result": accept("Ada")}),
    );
    recorded.respond(posted, 202, &[]);
    recorded.end(posted, EndedBy::Server, true);
    recorded.message(
        ask,
        Side::Server,
        json!({"jsonrpc": "2.0", "id": 1, "result": content("hello Ada")}),
    );
    recorded.end(ask, EndedBy::Server, true);
    recorded.message(
        other,
        Side::Server,
        json!({"jsonrpc": "2.0", "id": 2, "result": content("slept")}),
    );
    recorded.end(other, EndedBy::Server, true);
    recorded.recording()
}

#[tokio::test]
async fn an_answer_that_was_posted_belongs_to_the_question_on_the_stream() {
    for era in ERAS {
        let user = User::new([accept("Ada")]);
        let mock = Mock::new(&legacy_question());

        let client = builder(&mock, era).host(user.host()).await.unwrap();

        assert_eq!(client.call_tool("slow", ()).await.unwrap().text(), "slept");
        assert_eq!(
            client.call_tool("ask", ()).await.unwrap().text(),
            "hello Ada"
        );
        assert_eq!(user.asked(), ["Who?"]);
    }
}

#[tokio::test]
async fn a_status_without_a_message_is_an_error_and_a_closed_stream_a_cancel() {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let request = |tool: &str| {
        let params = json!({"name": tool, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    };
    let mut recorded = RecordedHttp::default();
    let refused = recorded.request("POST", &[]);
    recorded.message(refused, Side::Client, request("busy"));
    recorded.respond(refused, 503, &[]);
    recorded.end(refused, EndedBy::Server, true);
    let closed = recorded.request("POST", &[]);
    recorded.message(closed, Side::Client, request("slow"));
    recorded.respond(closed, 200, &[("content-type", "text/event-stream")]);
    recorded.end(closed, EndedBy::Client, false);
    let mock = Mock::new(&recorded.recording());

    let client = builder(&mock, Era::Legacy).await.unwrap();
    let busy = client.call_tool("busy", ()).await.unwrap_err();
    let slow = client
        .call_tool("slow", ())
        .timeout(Duration::from_millis(1))
        .await;

    assert!(busy.to_string().contains("HTTP status 503"), "{busy}");
    assert!(matches!(slow, Err(bowline::Error::Timeout { .. })));
}

/// Serves a mock on a free port.
async fn serve(mock: Mock) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let service = mock.http();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mock, service) = (mock.clone(), service.clone());
            tokio::spawn(async move { mock.serve_connection(&service, stream).await });
        }
    });
    url
}

#[tokio::test]
async fn clients_of_both_eras_are_asked_over_http() {
    for recorded_era in ERAS {
        for era in ERAS {
            let mut recorded = Recorded::new(recorded_era);
            recorded.ask(json!({}), "Who?", accept("Ada"), "hello Ada");
            recorded.call("now", json!({}), "noon");
            let url = serve(recorded.mock()).await;
            let user = User::new([accept("Ada")]);

            let client = Client::connect(&url).protocol_version(era.version());
            let client = client.host(user.host()).await.unwrap();

            assert_eq!(
                client.call_tool("ask", ()).await.unwrap().text(),
                "hello Ada"
            );
            assert_eq!(client.call_tool("now", ()).await.unwrap().text(), "noon");
            client.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn requests_without_a_connection_are_counted_together() {
    let mut recorded = Recorded::new(Era::Legacy);
    for text in ["one", "two"] {
        recorded.call("next", json!({}), text);
    }
    let url = serve(recorded.mock()).await;

    let mut texts = Vec::new();
    for _ in 0..2 {
        let client = Client::connect(&url)
            .protocol_version("2026-07-28")
            .await
            .unwrap();
        texts.push(client.call_tool("next", ()).await.unwrap().text());
    }

    assert_eq!(texts, ["one", "two"]);
}

#[tokio::test]
async fn a_connection_is_dropped_over_http() {
    for drop_after in [DropAfter::Answers(2), DropAfter::Bytes(1200)] {
        let mut recorded = Recorded::new(Era::Modern);
        recorded.call("get", json!({}), &"x".repeat(300));
        let recording = recorded.recording();
        let mock = Mock::builder(&recording).drop_after(drop_after).build();
        let url = serve(mock).await;

        // Without a pool each request would have a connection of its own.
        let client = Client::connect(&url)
            .protocol_version("2026-07-28")
            .await
            .unwrap();
        let mut answered = 0;
        let lost = loop {
            match client.call_tool("get", ()).await {
                Ok(_) => answered += 1,
                Err(error) => break error,
            }
            assert!(answered < 100, "{drop_after:?} drops nothing");
        };

        assert!(
            (1..=4).contains(&answered),
            "{drop_after:?}: {answered} answers"
        );
        assert!(!matches!(lost, bowline::Error::Rpc(_)), "{lost}");
    }
}
