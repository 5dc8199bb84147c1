//! Fronts, retries, keepers and questions on several threads.

use super::fake::*;
use crate::parked::budget::Usage;
use crate::parked::{ParkSettings, ParkedCalls};

const CALLS: usize = 200;
const QUESTIONS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_concurrent_retries_one_gets_the_call_whatever_the_threads_do() {
    let calls = parked_calls(ParkSettings::default());
    let clients = (0..CALLS).map(|_| tokio::spawn(call_with_questions(calls.clone())));
    let clients: Vec<_> = clients.collect();

    for client in clients {
        client.await.unwrap();
    }

    assert_eq!(calls.used(), Usage::default());
    assert!(calls.shared().lock().live.is_empty());
}

/// Makes a call whose upstream asks one question after the other, and sends every retry twice.
async fn call_with_questions(calls: ParkedCalls<FakeUpstream>) {
    let it = open(&calls);
    let (host, events) = (it.host, it.events);
    let upstream = tokio::spawn(async move {
        for _ in 0..QUESTIONS {
            let answer = host.question(elicitation()).await;
            assert_eq!(answer, Ok(accepted().into()));
        }
        assert!(events.send(FakeEvent::Answer(Ok(result()))).is_ok());
    });

    let mut outcome = run_front(it.call, it.upstream).await;
    let mut rounds = 0;
    while outcome != Ok(result()) {
        let (state, keys) = input_required(outcome);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let retry = || tokio::spawn(run_retry(calls.clone(), retry(&state, &keys)));
        let (first, second) = (retry(), retry());
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        let (accepted, refused) = match first {
            Ok(_) => (first, second),
            Err(_) => (second, first),
        };
        assert_eq!(refusal(refused), "-32602 request state was already used");
        outcome = accepted;
        rounds += 1;
    }

    assert_eq!(rounds, QUESTIONS);
    upstream.await.unwrap();
    assert_eq!(it.log.ends(), ["answered"]);
}
