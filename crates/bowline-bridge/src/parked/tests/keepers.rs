//! Parking, retries, hand-over, expiry.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bowline::exchange::{InputKind, Outcome, RawInputRequest};
use serde_json::json;
use tokio::time::{Instant, advance};

use super::fake::*;
use crate::parked::budget::Usage;
use crate::parked::{ParkSettings, ParkedCalls};

/// Parked calls, and one of them, with one question and its state.
struct Scene {
    calls: ParkedCalls<FakeUpstream>,
    events: tokio::sync::mpsc::UnboundedSender<FakeEvent>,
    log: UpstreamLog,
    host: crate::parked::HostSide<FakeUpstream>,
    question: tokio::task::JoinHandle<Outcome>,
    state: String,
}

async fn parked() -> Scene {
    let calls = parked_calls(ParkSettings::default());
    let it = open(&calls);
    let question = tokio::spawn(it.host.question(elicitation()));

    let (state, keys) = input_required(run_front(it.call, it.upstream).await);

    assert_eq!(keys, ["q1"]);
    Scene {
        calls,
        events: it.events,
        log: it.log,
        host: it.host,
        question,
        state,
    }
}

impl Scene {
    async fn retry(&self, state: &str, keys: &[&str]) -> Outcome {
        run_retry(self.calls.clone(), retry(state, keys)).await
    }

    fn answer(&self) {
        assert!(self.events.send(FakeEvent::Answer(Ok(result()))).is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_answers_the_question_and_gets_the_result_of_the_same_call() {
    let it = parked().await;
    let retry = tokio::spawn(run_retry(it.calls.clone(), retry(&it.state, &["q1"])));

    let answer = it.question.await.unwrap();
    it.events
        .send(FakeEvent::Answer(Ok(result())))
        .ok()
        .unwrap();

    assert_eq!(answer, Ok(accepted().into()));
    assert_eq!(retry.await.unwrap(), Ok(result()));
    assert_eq!(it.log.ends(), ["answered"]);
    assert_eq!(it.calls.used(), Usage::default());
}

#[tokio::test(start_paused = true)]
async fn a_call_is_charged_for_its_request_and_refused_if_that_is_too_large() {
    let calls = parked_calls(ParkSettings {
        max_bytes_each: 200_000,
        ..ParkSettings::default()
    });
    let large = request(&json!({"arguments": {"text": "x".repeat(100_000)}}));
    let (first, second) = (open_for(&calls, &large), open_for(&calls, &large));
    let questions = [&first, &second].map(|it| tokio::spawn(it.host.question(elicitation())));

    let (_, keys) = input_required(run_front(first.call, first.upstream).await);
    let used = calls.used();
    let refused = run_front(second.call, second.upstream).await;

    assert_eq!(keys, ["q1"]);
    assert!(used.bytes > 100_000, "{used:?}");
    let why = r#"-32603 too many parked calls {"mayHaveRun":true,"reason":"tooManyParkedCalls"}"#;
    assert_eq!(refusal(refused), why);
    assert_eq!(second.log.ends(), ["too many parked calls"]);
    assert_eq!(calls.used(), used);
    drop(questions);
}

#[tokio::test(start_paused = true)]
async fn of_two_retries_with_one_state_one_is_refused() {
    let it = parked().await;
    let first = tokio::spawn(run_retry(it.calls.clone(), retry(&it.state, &["q1"])));
    settle().await;

    let second = it.retry(&it.state, &["q1"]).await;
    it.answer();

    assert_eq!(refusal(second), "-32602 request state was already used");
    assert_eq!(first.await.unwrap(), Ok(result()));
    let third = it.retry(&it.state, &["q1"]).await;
    assert_eq!(refusal(third), "-32602 request state was already used");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_parked_again_for_another_question() {
    let it = parked().await;
    let first = tokio::spawn(run_retry(it.calls.clone(), retry(&it.state, &["q1"])));
    it.question.await.unwrap().unwrap();
    let question = tokio::spawn(it.host.question(elicitation()));
    let (state, keys) = input_required(first.await.unwrap());
    assert_eq!(keys, ["q2"]);

    let second = tokio::spawn(run_retry(it.calls.clone(), retry(&state, &["q2"])));
    question.await.unwrap().unwrap();
    assert!(it.events.send(FakeEvent::Answer(Ok(result()))).is_ok());

    assert_eq!(second.await.unwrap(), Ok(result()));
    assert_eq!(it.log.ends(), ["answered"]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_all_answers_gets_the_rest_of_the_questions() {
    let it = parked().await;
    let late = tokio::spawn(it.host.question(elicitation()));
    settle().await;

    let (state, keys) = input_required(it.retry(&it.state, &["q1"]).await);

    assert_eq!(keys, ["q2"]);
    assert_eq!(it.question.await.unwrap(), Ok(accepted().into()));
    let retry = tokio::spawn(run_retry(it.calls.clone(), retry(&state, &["q2"])));
    assert_eq!(late.await.unwrap(), Ok(accepted().into()));
    assert!(it.events.send(FakeEvent::Answer(Ok(result()))).is_ok());
    assert_eq!(retry.await.unwrap(), Ok(result()));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_upstream_cancels_is_not_shown_again() {
    let it = parked().await;
    let late = tokio::spawn(it.host.question(elicitation()));
    settle().await;
    it.question.abort();
    settle().await;

    let (_, keys) = input_required(it.retry(&it.state, &[]).await);

    assert_eq!(keys, ["q2"]);
    late.abort();
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_dropped_before_it_has_the_call_cancels_it() {
    for rounds_of_the_keeper in [0, 20] {
        let it = parked().await;
        let mut pending = Box::pin(run_retry(it.calls.clone(), retry(&it.state, &["q1"])));
        poll_once(pending.as_mut()).await;
        // With some, the call is in the channel already.
        for _ in 0..rounds_of_the_keeper {
            tokio::task::yield_now().await;
        }

        drop(pending);
        settle().await;

        assert_eq!(it.log.ends().len(), 1, "{:?}", it.log.ends());
        let ended = "-32603 the call that this request belongs to has ended";
        assert_eq!(refusal(it.question.await.unwrap()), ended);
        let late = run_retry(it.calls.clone(), retry(&it.state, &["q1"])).await;
        let cancelled = "-32602 request state is invalid: its call was cancelled";
        assert_eq!(refusal(late), cancelled);
        assert_eq!(it.calls.used(), Usage::default());
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_call_is_cancelled_upstream_and_its_tombstone_answers() {
    let it = parked().await;
    let start = Instant::now();
    advance(Duration::from_secs(299)).await;
    settle().await;
    assert_eq!(it.log.ends(), Vec::<String>::new());

    let question = it.question.await.unwrap();

    assert_eq!(start.elapsed().as_secs(), 300);
    let ended = "-32603 the call that this request belongs to has ended";
    assert_eq!(refusal(question), ended);
    assert_eq!(it.log.ends(), ["the client did not answer in time"]);
    assert_eq!(it.calls.used(), Usage::default());
    // From the tombstone, and from the seal.
    for seconds in [1, 50, 20, 100_000] {
        advance(Duration::from_secs(seconds)).await;
        let late = run_retry(it.calls.clone(), retry(&it.state, &["q1"])).await;
        assert_eq!(refusal(late), "-32602 request state has expired");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_with_missing_answers_restarts_the_timeout() {
    let it = parked().await;
    advance(Duration::from_secs(200)).await;
    let (state, _) = input_required(it.retry(&it.state, &[]).await);
    advance(Duration::from_secs(299)).await;
    settle().await;

    let retry = tokio::spawn(run_retry(it.calls.clone(), retry(&state, &["q1"])));

    assert_eq!(it.question.await.unwrap(), Ok(accepted().into()));
    retry.abort();
    settle().await;
    assert_eq!(it.log.ends(), ["dropped"]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_while_parked_releases_the_upstream_and_waits_for_the_retry() {
    let it = parked().await;
    it.answer();
    settle().await;
    assert!(it.events.is_closed(), "the upstream is released");
    assert!(it.question.await.unwrap().is_err());

    let outcome = run_retry(it.calls.clone(), retry(&it.state, &["q1"])).await;

    assert_eq!(outcome, Ok(result()));
    let late = run_retry(it.calls.clone(), retry(&it.state, &["q1"])).await;
    assert_eq!(refusal(late), "-32602 request state was already used");
    assert_eq!(it.calls.used(), Usage::default());
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_no_retry_takes_is_dropped_at_the_deadline() {
    let it = parked().await;
    it.answer();
    settle().await;
    assert_eq!(it.calls.used().calls, 1);

    advance(Duration::from_secs(301)).await;
    settle().await;

    assert_eq!(it.calls.used(), Usage::default());
    let late = it.retry(&it.state, &["q1"]).await;
    assert_eq!(refusal(late), "-32602 request state has expired");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_at_the_moment_of_the_retry_reaches_it() {
    type Pending = Arc<Mutex<Pin<Box<dyn Future<Output = Outcome> + Send>>>>;
    let it = parked().await;
    let retry = run_retry(it.calls.clone(), retry(&it.state, &["q1"]));
    let retry: Pending = Arc::new(Mutex::new(Box::pin(retry)));
    // Accepts the retry while the keeper polls the upstream, thus after it looked for a retry.
    let accepting = retry.clone();
    let accept = move || {
        let mut retry = accepting.lock().unwrap();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(retry.as_mut().poll(&mut cx).is_pending());
    };
    let answer = FakeEvent::AnswerAfter(Box::new(accept));
    assert!(it.events.send(answer).is_ok());
    settle().await;

    let outcome = poll_fn(|cx| retry.lock().unwrap().as_mut().poll(cx)).await;

    assert_eq!(outcome, Ok(result()));
    assert!(it.question.await.unwrap().is_err(), "the call has ended");
    assert_eq!(it.calls.used(), Usage::default());
}

#[tokio::test(start_paused = true)]
async fn a_front_that_is_dropped_refuses_the_questions_of_its_call() {
    let calls = parked_calls(ParkSettings::default());
    let it = open(&calls);
    // Roots alone do not park the call at once.
    let roots = RawInputRequest::new(InputKind::Roots, None);
    let question = tokio::spawn(it.host.question(roots));
    let front = tokio::spawn(run_front(it.call, it.upstream));
    settle().await;

    front.abort();

    let ended = "-32603 the call that this request belongs to has ended";
    assert_eq!(refusal(question.await.unwrap()), ended);
    assert_eq!(it.log.ends(), ["dropped"]);
    let late = it.host.question(elicitation()).await;
    assert_eq!(refusal(late), ended);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_roots_parks_a_call_that_is_not_answered_soon() {
    let calls = parked_calls(ParkSettings::default());
    let it = open(&calls);
    let roots = RawInputRequest::new(InputKind::Roots, None);
    let question = tokio::spawn(it.host.question(roots));
    let start = Instant::now();

    let (_, keys) = input_required(run_front(it.call, it.upstream).await);

    assert_eq!(keys, ["q1"]);
    assert_eq!(start.elapsed().as_millis(), 200);
    question.abort();
}

#[tokio::test(start_paused = true)]
async fn a_request_for_roots_is_seen_at_once_by_a_call_that_waits_for_it() {
    let calls = parked_calls(ParkSettings::default());
    let it = open(&calls);
    let roots = RawInputRequest::new(InputKind::Roots, None);
    let question = tokio::spawn(it.host.question(roots));
    let start = Instant::now();

    it.call.question_asked().await;

    assert_eq!(start.elapsed(), Duration::ZERO);
    question.abort();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_sent_has_not_run_if_it_cannot_be_parked() {
    let calls = parked_calls(ParkSettings {
        max_calls: 0,
        ..ParkSettings::default()
    });
    let mut it = open(&calls);
    it.upstream.is_sent = false;
    let question = tokio::spawn(it.host.question(elicitation()));

    let refused = run_front(it.call, it.upstream).await;

    assert!(refusal(refused).contains(r#""mayHaveRun":false"#));
    assert!(question.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_question_over_budget_ends_its_call_and_cancels_it_upstream() {
    let calls = parked_calls(ParkSettings {
        max_calls: 0,
        ..ParkSettings::default()
    });
    let it = open(&calls);
    let question = tokio::spawn(it.host.question(elicitation()));

    let refused = run_front(it.call, it.upstream).await;

    let expected =
        r#"-32603 too many parked calls {"mayHaveRun":true,"reason":"tooManyParkedCalls"}"#;
    assert_eq!(refusal(refused), expected);
    assert_eq!(it.log.ends(), ["too many parked calls"]);
    assert!(question.await.unwrap().is_err());
    let unsent = open(&calls).call.reserve();
    let expected =
        r#"-32603 too many parked calls {"mayHaveRun":false,"reason":"tooManyParkedCalls"}"#;
    assert_eq!(refusal(unsent), expected);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_bridge_says_that_the_call_is_lost_and_may_have_run() {
    let it = parked().await;
    let restarted = parked_calls(ParkSettings::default());

    let lost = run_retry(restarted, retry(&it.state, &["q1"])).await;

    let expected =
        r#"-32603 the call was lost; it may have run {"mayHaveRun":true,"reason":"callLost"}"#;
    assert_eq!(refusal(lost), expected);
}

#[tokio::test(start_paused = true)]
async fn a_forged_state_and_one_of_another_request_get_the_same_refusal() {
    let it = parked().await;
    let mut other = retry(&it.state, &["q1"]);
    other.method = "prompts/get".into();

    let forged = run_retry(it.calls.clone(), retry("forged", &["q1"])).await;
    let foreign = run_retry(it.calls.clone(), other).await;

    let expected = "-32602 `requestState` was not issued by this server for this request; if it was issued before a \
                    restart, its call was lost and may have run {\"mayHaveRun\":true,\"reason\":\"unknownState\"}";
    assert_eq!(refusal(forged), expected);
    assert_eq!(refusal(foreign), expected);
    assert_eq!(it.log.ends(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_panics_or_is_shut_down_leaves_a_lost_call() {
    for is_panic in [true, false] {
        let it = parked().await;
        if is_panic {
            assert!(it.events.send(FakeEvent::Panic).is_ok());
        } else {
            it.calls.shut_down();
        }
        settle().await;

        assert_eq!(it.calls.used(), Usage::default());
        assert_eq!(it.log.ends(), ["dropped"]);
        assert!(it.question.await.unwrap().is_err());
        let lost = run_retry(it.calls.clone(), retry(&it.state, &["q1"])).await;
        assert!(refusal(lost).contains("callLost"));
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_parked_calls_cancels_them_upstream() {
    let it = parked().await;

    drop(it.calls);

    assert!(it.question.await.unwrap().is_err());
    assert_eq!(it.log.ends(), ["dropped"]);
}

async fn poll_once(mut future: Pin<&mut impl Future<Output = Outcome>>) {
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}
