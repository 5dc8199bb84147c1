//! A server that wants to know who is asking: the call waits, its time stands still, and it is sent again.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::{Authorizer, HttpSend, Reason, Refusal, RequestBody, ResponseBody};
use bowline::{Client, Error};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, request};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

const VERSIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];

/// A server without a socket, so that the clock of a test can stand still. It answers whoever is known.
#[derive(Clone)]
struct Door {
    /// What arrived: the method, and what it said about the caller.
    seen: Arc<Mutex<Vec<String>>>,
    opens_to: &'static str,
    /// Whether calls of tools are answered at once.
    answers_calls: watch::Sender<bool>,
}

impl Door {
    fn opening_to(opens_to: &'static str) -> Self {
        Self {
            seen: Arc::default(),
            opens_to,
            answers_calls: watch::Sender::new(true),
        }
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn answer(&self, head: &request::Parts, body: &[u8]) -> Response<ResponseBody> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let what = body["method"].as_str().unwrap_or(head.method.as_str());
        let known = head
            .headers
            .get(AUTHORIZATION)
            .map(|it| it.to_str().unwrap());
        let line = format!("{what} {}", known.unwrap_or("-"));
        self.seen.lock().unwrap().push(line);
        if known != Some(self.opens_to) {
            let mut refused = empty(if known.is_some() { 403 } else { 401 });
            let challenge = "Bearer error=\"insufficient_scope\", scope=\"more\"";
            let challenge = HeaderValue::from_static(challenge);
            refused.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            return refused;
        }
        let result = match what {
            "tools/call" => json!({"resultType": "complete", "content": []}),
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "door", "version": "1"},
            }),
            "GET" => return empty(405),
            "server/discover" => return empty(400),
            _ => return empty(202),
        };
        let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
        let mut response = Response::new(ResponseBody::new(Full::new(Bytes::from(answer))));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        if what == "initialize" {
            // Without one a dropped call is closed at once, and there is nobody left to ask about it.
            let session = HeaderValue::from_static("s1");
            response.headers_mut().insert("mcp-session-id", session);
        }
        response
    }
}

fn empty(status: u16) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::new(Full::new(Bytes::new())));
    *response.status_mut() = status.try_into().unwrap();
    response
}

impl HttpSend for Door {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, bowline::Result<Response<ResponseBody>>> {
        let (head, body) = request.into_parts();
        let body = body.into_bytes();
        let response = self.answer(&head, &body);
        let mut answers_calls = self.answers_calls.subscribe();
        let is_call = String::from_utf8_lossy(&body).contains("tools/call");
        Box::pin(async move {
            drop(answers_calls.wait_for(|answers| *answers || !is_call).await);
            Ok(response)
        })
    }
}

/// Says what it was told to say, after a while.
#[derive(Clone)]
struct Person {
    says: Arc<Mutex<&'static str>>,
    answers: &'static [&'static str],
    thinks: Duration,
    asked: Arc<Mutex<Vec<Reason>>>,
    deciding: watch::Sender<bool>,
}

impl Person {
    fn answering(answers: &'static [&'static str]) -> Self {
        Self {
            says: Arc::default(),
            answers,
            thinks: Duration::ZERO,
            asked: Arc::default(),
            deciding: watch::Sender::new(false),
        }
    }

    fn thinking(mut self, thinks: Duration) -> Self {
        self.thinks = thinks;
        self
    }
}

impl Authorizer for Person {
    fn sign<'a>(&'a self, head: &'a mut request::Parts) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async {
            let says = *self.says.lock().unwrap();
            if !says.is_empty() {
                let says = HeaderValue::from_static(says);
                head.headers.insert(AUTHORIZATION, says);
            }
            Ok(())
        })
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async {
            let mut asked = self.asked.lock().unwrap().len();
            self.asked.lock().unwrap().push(refusal.reason);
            self.deciding.send_replace(true);
            let gone = Gone(&self.deciding);
            let _ = timeout(self.thinks, pending::<()>()).await;
            drop(gone);
            asked = asked.min(self.answers.len() - 1);
            *self.says.lock().unwrap() = self.answers[asked];
            Ok(())
        })
    }

    fn identity(&self) -> Option<String> {
        None
    }
}

/// Tells when a decision is over, however it ended.
struct Gone<'a>(&'a watch::Sender<bool>);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

async fn connect(door: &Door, person: &Person, version: &str) -> bowline::Result<Client> {
    Client::connect("http://door.test/mcp")
        .http(door.clone())
        .authorizer(person.clone())
        .speaking(version)
        .await
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_waits_for_an_answer_and_is_sent_again() {
    for version in VERSIONS {
        let door = Door::opening_to("yes");
        let person = Person::answering(&["yes"]);

        let client = connect(&door, &person, version).await.unwrap();
        client.call_tool("x", ()).await.unwrap();

        let seen = door.seen();
        assert_eq!(*person.asked.lock().unwrap(), [Reason::Unauthenticated]);
        assert!(seen[0].ends_with(" -"), "{seen:?}");
        assert!(seen[1..].iter().all(|it| it.ends_with(" yes")), "{seen:?}");
        assert_eq!(seen.last().unwrap(), "tools/call yes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_again_once_for_each_reason_to_refuse_it() {
    for version in VERSIONS {
        let door = Door::opening_to("yes");
        let person = Person::answering(&["perhaps", "perhaps", "yes"]);

        let outcome = match connect(&door, &person, version).await {
            Ok(client) => client.call_tool("x", ()).await.map(|_| ()),
            Err(error) => Err(error),
        };

        let Err(Error::Unauthorized { challenges, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(challenges[0].scope(), Some("more"));
        assert_eq!(
            *person.asked.lock().unwrap(),
            [Reason::Unauthenticated, Reason::InsufficientScope]
        );
        assert_eq!(door.seen().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_a_person_decides_does_not_count() {
    for version in VERSIONS {
        let door = Door::opening_to("yes");
        let person = Person::answering(&["yes"]).thinking(Duration::from_secs(600));
        *person.says.lock().unwrap() = "yes";
        let client = connect(&door, &person, version).await.unwrap();
        client.call_tool("x", ()).await.unwrap();
        *person.says.lock().unwrap() = "";

        let limited = client
            .call_tool("x", ())
            .timeout(Duration::from_secs(1))
            .total_timeout(Duration::from_secs(2))
            .await;

        assert!(limited.is_ok(), "{limited:?}");
        assert_eq!(person.asked.lock().unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_words_wait_for_a_person_too() {
    let door = Door::opening_to("yes");
    let person = Person::answering(&["yes"]).thinking(Duration::from_secs(600));

    let client = Client::connect("http://door.test/mcp")
        .http(door.clone())
        .authorizer(person)
        .await
        .unwrap();

    client.call_tool("x", ()).await.unwrap();
    let seen = door.seen();
    assert_eq!(
        seen[..3],
        ["server/discover -", "server/discover yes", "initialize yes"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_legacy_server_is_authorized_too() {
    let door = Door::opening_to("yes");
    let person = Person::answering(&["yes"]);

    let client = connect(&door, &person, "2025-11-25").await.unwrap();

    let mut seen = door.seen();
    while !seen.iter().any(|it| it.starts_with("GET")) {
        tokio::task::yield_now().await;
        seen.extend(door.seen());
    }
    assert!(seen.contains(&"GET yes".to_owned()), "{seen:?}");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_ends_the_decision_it_waits_for_and_nothing_is_sent() {
    for version in VERSIONS {
        let door = Door::opening_to("yes");
        let person = Person::answering(&["yes"]);
        *person.says.lock().unwrap() = "yes";
        let client = connect(&door, &person, version).await.unwrap();
        client.call_tool("x", ()).await.unwrap();
        *person.says.lock().unwrap() = "";
        door.seen();
        let person = Person {
            thinks: Duration::from_secs(3600),
            ..person
        };
        let slow = connect(&door, &person, version);
        let mut deciding = person.deciding.subscribe();
        let begun = async { drop(deciding.wait_for(|it| *it).await.unwrap()) };

        let call = async { slow.await.unwrap().call_tool("x", ()).await };
        tokio::select! {
            outcome = call => panic!("it ended: {outcome:?}"),
            () = begun => {}
        }

        deciding.wait_for(|it| !*it).await.unwrap();
        assert_eq!(door.seen().len(), 1, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_call_that_is_dropped_while_a_person_decides_was_never_sent() {
    let door = Door::opening_to("yes");
    let person = Person::answering(&["yes"]).thinking(Duration::from_secs(3600));
    *person.says.lock().unwrap() = "yes";
    let client = connect(&door, &person, "2025-11-25").await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    *person.says.lock().unwrap() = "";
    let mut deciding = person.deciding.subscribe();
    door.seen();

    let call = client.call_tool("x", ()).start();
    deciding.wait_for(|it| *it).await.unwrap();
    drop(call);
    deciding.wait_for(|it| !*it).await.unwrap();
    *person.says.lock().unwrap() = "yes";
    client.call_tool("y", ()).await.unwrap();

    assert_eq!(door.seen(), ["tools/call -", "tools/call yes"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_about_a_legacy_call_that_was_dropped_before_it_was_refused() {
    let door = Door::opening_to("yes");
    let person = Person::answering(&["yes"]);
    *person.says.lock().unwrap() = "yes";
    let client = connect(&door, &person, "2025-11-25").await.unwrap();
    client.call_tool("x", ()).await.unwrap();
    *person.says.lock().unwrap() = "";
    door.answers_calls.send_replace(false);
    door.seen();

    let call = client.call_tool("x", ()).start();
    let mut seen = Vec::new();
    while seen.is_empty() {
        tokio::task::yield_now().await;
        seen.extend(door.seen());
    }
    drop(call);
    while seen.len() < 2 {
        tokio::time::advance(Duration::from_millis(10)).await;
        seen.extend(door.seen());
    }
    door.answers_calls.send_replace(true);
    *person.says.lock().unwrap() = "yes";
    client.call_tool("y", ()).await.unwrap();

    assert_eq!(seen, ["tools/call -", "notifications/cancelled -"]);
    assert!(person.asked.lock().unwrap().is_empty());
}
