//! `Context::once`, and clients that send a `requestState` more than once.

use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::types::ErrorCode;
use bowline::{
    Client, Context, Error, Marked, Marks, MarksError, MemoryMarks, Server, Tool, ToolError,
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::{Heard, MODERN, Said, replying};

/// The number of charges.
type Charged = watch::Sender<usize>;

/// Asks, charges once, and asks once more. Charging waits for `gate`, and fails if that is closed.
fn shop(charged: &Charged, gate: &Arc<Semaphore>) -> Server {
    let (charged, gate) = (charged.clone(), gate.clone());
    let buy = Tool::new("buy", move |cx: Context| {
        let (charged, gate) = (charged.clone(), gate.clone());
        async move {
            let sure: Said = cx.elicit("sure", "Sure?").await?;
            let charge = async {
                charged.send_modify(|charges| *charges += 1);
                let nth = *charged.borrow();
                let open = gate.acquire().await;
                let _open = open.map_err(|_| ToolError::new("the bank is closed"))?;
                Ok::<_, ToolError>(format!("charge {nth} ({})", sure.said))
            };
            let receipt = cx.try_once("charge", charge).await?;
            let stars: Said = cx.elicit("stars", "How was it?").await?;
            Ok::<_, ToolError>(format!("{receipt}: {}", stars.said))
        }
    });
    Server::new("shop", "1.0.0").tool(buy)
}

fn open() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))
}

/// A client, and the state that the first question came with.
async fn asked(server: &Server) -> (Client, Value) {
    let host = replying(&Heard::default());
    let client = Client::to(server).speaking(MODERN).host(host);
    let client = client.await.unwrap();
    let reply = client.call_tool("buy", ()).by_hand().await.unwrap();
    let state = reply.input_required().unwrap().request_state.unwrap();
    (client, json!(state))
}

/// Answers one question, and returns the state that comes with the next, or the text of the result.
async fn answer(client: &Client, key: &str, said: &str, state: &Value) -> Result<Value, Error> {
    let answers = json!({key: {"action": "accept", "content": {"said": said}}});
    let params = json!({
        "name": "buy", "arguments": {}, "inputResponses": answers, "requestState": state,
    });
    let reply = client.raw("tools/call", params).by_hand().await?;
    Ok(match reply.input_required() {
        Some(required) => json!(required.request_state.unwrap()),
        None => json!(reply.text()),
    })
}

/// Whether the error says that the state was used.
fn used_up(error: &Error) -> bool {
    let Error::Peer(error) = error else {
        return false;
    };
    error.code == ErrorCode::INVALID_PARAMS
        && error.message == "the request state was already used; start again without it"
}

#[tokio::test(start_paused = true)]
async fn an_old_state_finds_what_came_of_it_and_does_it_no_second_time() {
    let charged = Charged::default();
    let (client, state) = asked(&shop(&charged, &open())).await;

    // The same state, as if the first answer had been lost; and then with a change of mind.
    let mut texts = Vec::new();
    for said in ["yes", "yes", "five of them"] {
        let next = answer(&client, "sure", said, &state).await.unwrap();
        texts.push(answer(&client, "stars", "good", &next).await.unwrap());
    }

    assert_eq!(texts, vec!["charge 1 (yes): good"; 3]);
    assert_eq!(*charged.borrow(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_starts_anew_does_it_anew() {
    let charged = Charged::default();
    let server = shop(&charged, &open());

    for nth in 1..=2 {
        let (client, state) = asked(&server).await;
        let next = answer(&client, "sure", "yes", &state).await.unwrap();
        let text = answer(&client, "stars", "good", &next).await.unwrap();
        assert_eq!(text, format!("charge {nth} (yes): good"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_state_is_refused_if_it_failed_or_still_runs_or_was_cancelled() {
    let charged = Charged::default();
    let mut begun = charged.subscribe();
    let gate = Arc::new(Semaphore::new(0));
    let server = shop(&charged, &gate);
    let (client, state) = asked(&server).await;

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
    assert!(used_up(&meanwhile), "{meanwhile}");
    assert!(used_up(&after_cancel), "{after_cancel}");

    let (client, state) = asked(&server).await;
    gate.close();
    let failed = answer(&client, "sure", "yes", &state).await.unwrap();
    let again = answer(&client, "sure", "yes", &state).await.unwrap_err();
    assert_eq!(failed, "the bank is closed");
    assert!(used_up(&again), "{again}");
    assert_eq!(*charged.borrow(), 2);
}

/// Knows who was there, and nothing else.
struct Doorman(MemoryMarks);

impl Marks for Doorman {
    fn mark<'a>(
        &'a self,
        key: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<Marked, MarksError>> {
        assert!(key.len() <= 256 && key.bytes().all(|byte| (32..127).contains(&byte)));
        self.0.mark(key, lifetime)
    }

    fn keep<'a>(&'a self, _: &'a str, _: Bytes) -> BoxFuture<'a, Result<(), MarksError>> {
        Box::pin(async { Err(MarksError::Full) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_output_that_cannot_be_kept_fails_nobody_but_who_sends_the_state_again() {
    let charged = Charged::default();
    let server = shop(&charged, &open()).marks(Doorman(MemoryMarks::new()));
    let (client, state) = asked(&server).await;

    let next = answer(&client, "sure", "yes", &state).await.unwrap();
    let text = answer(&client, "stars", "good", &next).await.unwrap();
    let again = answer(&client, "sure", "yes", &state).await.unwrap_err();

    assert_eq!(text, "charge 1 (yes): good");
    assert!(used_up(&again), "{again}");
}

/// Does not answer.
struct Silent;

impl Marks for Silent {
    fn mark<'a>(&'a self, _: &'a str, _: Duration) -> BoxFuture<'a, Result<Marked, MarksError>> {
        Box::pin(std::future::pending())
    }

    fn keep<'a>(&'a self, _: &'a str, _: Bytes) -> BoxFuture<'a, Result<(), MarksError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_if_it_is_not_known_whether_it_has_happened() {
    for marks in [
        Arc::new(MemoryMarks::new().max_marks(0)) as Arc<dyn Marks>,
        Arc::new(Silent),
    ] {
        let charged = Charged::default();
        let (client, state) = asked(&shop(&charged, &open()).marks(marks)).await;

        let told = answer(&client, "sure", "yes", &state).await.unwrap();

        assert!(
            told.as_str()
                .unwrap()
                .starts_with("failed to check whether this has happened before"),
            "{told}"
        );
        assert_eq!(*charged.borrow(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_share_marks_do_it_once_among_them() {
    let (charged, marks) = (Charged::default(), Arc::new(MemoryMarks::new()));
    let replica = || {
        let server = shop(&charged, &open()).marks(marks.clone());
        server.input_keys([7; 32])
    };
    let (one, state) = asked(&replica()).await;
    let (other, _) = asked(&replica()).await;

    let next = answer(&one, "sure", "yes", &state).await.unwrap();
    answer(&other, "sure", "yes", &state).await.unwrap();

    let text = answer(&other, "stars", "good", &next).await.unwrap();
    assert_eq!(text, "charge 1 (yes): good");
    assert_eq!(*charged.borrow(), 1);
}
