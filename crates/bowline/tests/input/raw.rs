//! Input requests as JSON: `Context::ask_raw`.

use std::sync::{Arc, Mutex};

use bowline::exchange::{Context, InputKind, Outcome, RawInputRequest, Request};
use bowline::testing::matrix;
use bowline::types::ClientCapabilities;
use bowline::{Server, Tool};
use serde_json::{Value, json};

/// A server whose tool `ask` sends this input request and returns the answer as text.
fn asking_server(kind: InputKind, params: Value) -> Server {
    let ask = Tool::new("ask", move |cx: Context| {
        let request = RawInputRequest::new(kind, Some(params.clone().into()));
        async move {
            cx.ask_raw("it", request)
                .await
                .map(|answer| answer.to_string())
        }
    });
    Server::new("curious", "1.0.0").tool(ask)
}

/// A host that records the params of the last request, and the capabilities of a client with it.
fn recording_host(
    seen: &Arc<Mutex<Value>>,
) -> (impl bowline::exchange::Responder, ClientCapabilities) {
    let seen = seen.clone();
    let host = move |request: Request, _: Context| {
        *seen.lock().unwrap() = request.params.decode().unwrap();
        std::future::ready(Outcome::Ok(json!({"action": "accept", "x": 1}).into()))
    };
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}});
    (host, serde_json::from_value(capabilities).unwrap())
}

#[tokio::test]
async fn a_raw_form_is_converted_to_the_version_of_the_client() {
    let form = json!({"mode": "form", "message": "?", "com.example/x": 1.50, "requestedSchema": {
        "type": "object", "properties": {"a": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}},
    }});
    let server = asking_server(InputKind::Elicitation, form.clone());
    for case in matrix().since("2025-06-18") {
        let seen = Arc::default();
        let (host, capabilities) = recording_host(&seen);
        let connect = case
            .serve(&server)
            .connect
            .host_responder(host, capabilities);
        let client = connect.await.unwrap();

        let answer = client.call_tool("ask", ()).await.unwrap().text();

        let mut expected = form.clone();
        if case.dialect.version == "2025-06-18" {
            expected.as_object_mut().unwrap().remove("mode");
            let names = json!({"type": "string", "enum": ["r"], "enumNames": ["Red"]});
            expected["requestedSchema"]["properties"]["a"] = names;
        }
        assert_eq!(*seen.lock().unwrap(), expected, "{case}");
        assert_eq!(answer, r#"{"action":"accept","x":1}"#, "{case}");
    }
}

#[tokio::test]
async fn a_raw_url_has_an_elicitation_id_where_the_version_requires_one() {
    let url = json!({"mode": "url", "message": "?", "url": "https://a.example"});
    let server = asking_server(InputKind::Elicitation, url);
    for case in matrix().since("2025-11-25") {
        let seen = Arc::<Mutex<Value>>::default();
        let (host, capabilities) = recording_host(&seen);
        let connect = case
            .serve(&server)
            .connect
            .host_responder(host, capabilities);
        let client = connect.await.unwrap();

        client.call_tool("ask", ()).await.unwrap();

        let has_id = seen.lock().unwrap()["elicitationId"].is_string();
        assert_eq!(has_id, !case.dialect.is_modern(), "{case}");
    }
}

#[tokio::test]
async fn a_raw_url_that_is_not_one_of_the_web_is_not_sent() {
    let url = json!({"mode": "url", "message": "?", "url": "javascript:alert(1)"});
    let server = asking_server(InputKind::Elicitation, url);
    for case in matrix().since("2025-11-25") {
        let seen = Arc::<Mutex<Value>>::default();
        let (host, capabilities) = recording_host(&seen);
        let connect = case
            .serve(&server)
            .connect
            .host_responder(host, capabilities);
        let client = connect.await.unwrap();

        let reply = client.call_tool("ask", ()).await.unwrap();

        assert!(reply.text().contains("URL"), "{case}: {}", reply.text());
        assert_eq!(*seen.lock().unwrap(), Value::Null, "{case}");
    }
}
