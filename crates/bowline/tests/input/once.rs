//! `Context::once`, and clients that send a `requestState` more than once.

use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::{MarkError, MarkFuture, Marks, MemoryMarks};
use bowline::types::ErrorCode;
use bowline::{Client, Context, Error, Server, Tool, ToolError};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::{HostLog, MODERN, TextForm, replying_host};

/// The number of charges.
type Charged = watch::Sender<usize>;

/// A server whose tool elicits, charges once, and elicits again. Charging waits for `gate`, and fails if it is closed.
fn shop(charged: &Charged, gate: &Arc<Semaphore>) -> Server {
    let (charged, gate) = (charged.clone(), gate.clone());
    let buy = Tool::new("buy", move |cx: Context| {
        let (charged, gate) = (charged.clone(), gate.clone());
        async move {
            let sure: TextForm = cx.elicit("sure", "Sure?").await?;
            let charge = async {
                charged.send_modify(|charges| *charges += 1);
                let nth = *charged.borrow();
                let open = gate.acquire().await;
                let _open = open.map_err(|_| ToolError::new("the bank is closed"))?;
                Ok::<_, ToolError>(format!("charge {nth} ({})", sure.text))
            };
            let receipt = cx.try_once("charge", charge).await?;
            let stars: TextForm = cx.elicit("stars", "How was it?").await?;
            Ok::<_, ToolError>(format!("{receipt}: {}", stars.text))
        }
    });
    Server::new("shop", "1.0.0").tool(buy)
}

fn open_gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))
}

/// Returns a client and the state of the first `input_required`.
async fn first_round(server: &Server) -> (Client, Value) {
    let host = replying_host(&HostLog::default());
    let client = Client::in_process(server)
        .protocol_version(MODERN)
        .host(host);
    let client = client.await.unwrap();
    let reply = client.call_tool("buy", ()).manual_input().await.unwrap();
    let state = reply.input_required().unwrap().request_state.unwrap();
    (client, json!(state))
}

/// Answers one elicitation, and returns the state of the next `input_required` or the text of the result.
async fn answer(client: &Client, key: &str, text: &str, state: &Value) -> Result<Value, Error> {
    let answers = json!({key: {"action": "accept", "content": {"text": text}}});
    let params = json!({
        "name": "buy", "arguments": {}, "inputResponses": answers, "requestState": state,
    });
    let reply = client
        .request_raw("tools/call", params)
        .manual_input()
        .await?;
    Ok(match reply.input_required() {
        Some(required) => json!(required.request_state.unwrap()),
        None => json!(reply.text()),
    })
}

fn is_already_used(error: &Error) -> bool {
    let Error::Rpc(error) = error else {
        return false;
    };
    error.code == ErrorCode::INVALID_PARAMS
        && error.message == "the request state was already used; start again without it"
}

#[tokio::test(start_paused = true)]
async fn a_reused_state_returns_the_stored_output_without_a_second_effect() {
    let charged = Charged::default();
    let (client, state) = first_round(&shop(&charged, &open_gate())).await;

    // The same state again, as if the first response had been lost, and then with another answer.
    let mut texts = Vec::new();
    for text in ["yes", "yes", "five of them"] {
        let next = answer(&client, "sure", text, &state).await.unwrap();
        texts.push(answer(&client, "stars", "good", &next).await.unwrap());
    }

    assert_eq!(texts, vec!["charge 1 (yes): good"; 3]);
    assert_eq!(*charged.borrow(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_call_performs_the_effect_again() {
    let charged = Charged::default();
    let server = shop(&charged, &open_gate());

    for nth in 1..=2 {
        let (client, state) = first_round(&server).await;
        let next = answer(&client, "sure", "yes", &state).await.unwrap();
        let text = answer(&client, "stars", "good", &next).await.unwrap();
        assert_eq!(text, format!("charge {nth} (yes): good"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reused_state_is_refused_if_its_effect_failed_or_runs_or_was_cancelled() {
    let charged = Charged::default();
    let mut begun = charged.subscribe();
    let gate = Arc::new(Semaphore::new(0));
    let server = shop(&charged, &gate);
    let (client, state) = first_round(&server).await;

    let (its_client, its_state) = (client.clone(), state.clone());
    let running = tokio::spawn(async move { answer(&its_client, "sure", "yes", &its_state).await });
    let begun = begun.wait_for(|charges| *charges == 1);
    timeout(Duration::from_secs(60), begun)
        .await
        .unwrap()
        .unwrap();
    let meanwhile = answer(&client, "sure", "yes", &state).await.unwrap_err();
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let after_cancel = answer(&client, "sure", "yes", &state).await.unwrap_err();
    assert!(is_already_used(&meanwhile), "{meanwhile}");
    assert!(is_already_used(&after_cancel), "{after_cancel}");

    let (client, state) = first_round(&server).await;
    gate.close();
    let failed = answer(&client, "sure", "yes", &state).await.unwrap();
    let again = answer(&client, "sure", "yes", &state).await.unwrap_err();
    assert_eq!(failed, "the bank is closed");
    assert!(is_already_used(&again), "{again}");
    assert_eq!(*charged.borrow(), 2);
}

/// What a [`TestMarks`] does.
#[derive(Clone, Copy, PartialEq)]
enum MarksBehavior {
    /// Keeps marks and no outputs.
    RefuseToReplace,
    NeverRespond,
}

struct TestMarks(MemoryMarks, MarksBehavior);

impl Marks for TestMarks {
    fn set_if_absent<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, Option<Bytes>> {
        assert!(key.len() <= 512 && key.iter().all(|byte| (32..127).contains(byte)));
        match self.1 {
            MarksBehavior::RefuseToReplace => self.0.set_if_absent(key, value, lifetime),
            MarksBehavior::NeverRespond => Box::pin(std::future::pending()),
        }
    }

    fn set<'a>(&'a self, _: &'a [u8], _: &'a [u8], _: Duration) -> MarkFuture<'a, ()> {
        Box::pin(async { Err(MarkError::Full) })
    }

    fn replace<'a>(
        &'a self,
        _: &'a [u8],
        _: &'a [u8],
        _: &'a [u8],
        _: Duration,
    ) -> MarkFuture<'a, bool> {
        Box::pin(async { Err(MarkError::Full) })
    }

    fn read<'a>(&'a self, _: &'a [u8]) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async { Err(MarkError::Full) })
    }

    fn remove<'a>(&'a self, _: &'a [u8], _: &'a [u8]) -> MarkFuture<'a, bool> {
        Box::pin(async { Err(MarkError::Full) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_output_that_cannot_be_stored_fails_only_a_reused_state() {
    let charged = Charged::default();
    let server = shop(&charged, &open_gate()).marks(TestMarks(
        MemoryMarks::new(),
        MarksBehavior::RefuseToReplace,
    ));
    let (client, state) = first_round(&server).await;

    let next = answer(&client, "sure", "yes", &state).await.unwrap();
    let text = answer(&client, "stars", "good", &next).await.unwrap();
    let again = answer(&client, "sure", "yes", &state).await.unwrap_err();

    assert_eq!(text, "charge 1 (yes): good");
    assert!(is_already_used(&again), "{again}");
}

#[tokio::test(start_paused = true)]
async fn an_effect_is_not_performed_if_its_mark_cannot_be_set() {
    for marks in [
        Arc::new(MemoryMarks::new().max_marks(0)) as Arc<dyn Marks>,
        Arc::new(TestMarks(MemoryMarks::new(), MarksBehavior::NeverRespond)),
    ] {
        let charged = Charged::default();
        let (client, state) = first_round(&shop(&charged, &open_gate()).marks(marks)).await;

        let text = answer(&client, "sure", "yes", &state).await.unwrap();

        assert!(
            text.as_str()
                .unwrap()
                .starts_with("failed to check whether the effect was already performed"),
            "{text}"
        );
        assert_eq!(*charged.borrow(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_share_marks_perform_an_effect_once() {
    let (charged, marks) = (Charged::default(), Arc::new(MemoryMarks::new()));
    let replica = || {
        let server = shop(&charged, &open_gate()).marks(marks.clone());
        server.request_state_keys([7; 32])
    };
    let (one, state) = first_round(&replica()).await;
    let (other, _) = first_round(&replica()).await;

    let next = answer(&one, "sure", "yes", &state).await.unwrap();
    answer(&other, "sure", "yes", &state).await.unwrap();

    let text = answer(&other, "stars", "good", &next).await.unwrap();
    assert_eq!(text, "charge 1 (yes): good");
    assert_eq!(*charged.borrow(), 1);
}
