//! An upstream that does what a test sends, and a bridge around it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bowline::exchange::{
    Caller, Dialect, InputKind, Notification, NotificationSink as _, Outcome, Principal,
    RawInputRequest, Request,
};
use bowline::seal::Sealer;
use bowline::types::{
    ElicitationCapability, InputRequiredResult, LoggingLevel, ProgressToken, RootsCapability,
};
use bowline::{Json, RpcError};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::parked::{
    Call, HostSide, KeptNotifications, ParkSettings, ParkedCalls, Resumed, Retry, Upstream,
};
use crate::state_keys::StateKeys;

/// A running call whose events a test sends.
#[derive(Debug)]
pub(super) struct FakeUpstream {
    events: mpsc::UnboundedReceiver<FakeEvent>,
    log: UpstreamLog,
    pub(super) is_sent: bool,
}

pub(super) enum FakeEvent {
    Notify(Notification),
    Answer(Outcome),
    /// Runs the function, then answers.
    AnswerAfter(Box<dyn FnOnce() + Send>),
    Panic,
}

/// How the call has ended at the upstream: "answered", or why it was cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamLog(Arc<Mutex<Vec<String>>>);

impl UpstreamLog {
    pub(super) fn ends(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn push(&self, end: &str) {
        self.0.lock().unwrap().push(end.to_owned());
    }
}

impl FakeUpstream {
    pub(super) fn new() -> (Self, mpsc::UnboundedSender<FakeEvent>, UpstreamLog) {
        let (sender, events) = mpsc::unbounded_channel();
        let log = UpstreamLog::default();
        let upstream = Self {
            events,
            log: log.clone(),
            is_sent: true,
        };
        (upstream, sender, log)
    }
}

impl Upstream for FakeUpstream {
    async fn outcome(&mut self, kept: &Arc<KeptNotifications>) -> Outcome {
        loop {
            let event = match self.events.recv().await {
                Some(event) => event,
                None => std::future::pending().await,
            };
            let outcome = match event {
                FakeEvent::Notify(notification) => {
                    kept.notify(notification);
                    continue;
                }
                FakeEvent::Answer(outcome) => outcome,
                FakeEvent::AnswerAfter(run) => {
                    run();
                    Ok(result())
                }
                FakeEvent::Panic => panic!("the upstream panics, as the test wants"),
            };
            self.log.push("answered");
            return outcome;
        }
    }

    fn may_have_run(&self) -> bool {
        self.is_sent
    }

    fn server(&self) -> &'static str {
        "fake"
    }

    fn cancel(self, reason: &str) {
        self.log.push(reason);
    }
}

impl Drop for FakeUpstream {
    fn drop(&mut self) {
        if self.log.ends().is_empty() {
            self.log.push("dropped");
        }
    }
}

/// Parked calls, and a clock for their seals that follows that of tokio.
pub(super) fn parked_calls(settings: ParkSettings) -> ParkedCalls<FakeUpstream> {
    let start = Instant::now();
    let clock = move || UNIX_EPOCH + Duration::from_secs(1_000_000) + start.elapsed();
    ParkedCalls::new(StateKeys::new(Sealer::new([1; 32]).clock(clock)), settings)
}

/// What the bridge does with an attached call.
pub(super) async fn run_front(call: Call<FakeUpstream>, mut upstream: FakeUpstream) -> Outcome {
    let notifications = Arc::default();
    tokio::select! {
        biased;
        // First: a call that is answered need not be parked.
        outcome = upstream.outcome(&notifications) => {
            call.finish();
            outcome
        }
        () = call.questions_ready() => call.park(upstream),
    }
}

/// What the bridge does with a retry.
pub(super) async fn run_retry(calls: ParkedCalls<FakeUpstream>, request: Request) -> Outcome {
    let ada = ada();
    let retry = Retry::read(&request, &ada, "fake")?.expect("the request has a state");
    match calls.resume(&retry).await? {
        Resumed::Running { call, upstream, .. } => run_front(call, upstream).await,
        Resumed::Answered { outcome, .. } => outcome,
    }
}

/// An open call, with the other ends of its upstream and its questions.
pub(super) struct TestCall {
    pub(super) call: Call<FakeUpstream>,
    pub(super) upstream: FakeUpstream,
    pub(super) events: mpsc::UnboundedSender<FakeEvent>,
    pub(super) log: UpstreamLog,
    pub(super) host: HostSide<FakeUpstream>,
}

pub(super) fn open(calls: &ParkedCalls<FakeUpstream>) -> TestCall {
    open_for(calls, &request(&json!({})))
}

pub(super) fn open_for(calls: &ParkedCalls<FakeUpstream>, request: &Request) -> TestCall {
    let call = calls.open_call(request, &ada());
    let (upstream, events, log) = FakeUpstream::new();
    TestCall {
        host: call.host_side(),
        call,
        upstream,
        events,
        log,
    }
}

pub(super) fn ada() -> Principal {
    Principal::named("ada")
}

/// Returns a `tools/call` of a client with elicitation and roots, with these members besides its name.
pub(super) fn request(members: &Value) -> Request {
    let mut caller = Caller::new(Dialect::LATEST);
    caller.capabilities.elicitation = Some(ElicitationCapability::default());
    caller.capabilities.roots = Some(RootsCapability::default());
    caller.log_level = Some(LoggingLevel::Info);
    let mut params = json!({"name": "pay"});
    for (name, value) in members.as_object().unwrap() {
        params[name] = value.clone();
    }
    let mut request = Request::new("tools/call", Json::from(params), Arc::new(caller));
    request.progress_token = Some(ProgressToken::from("second".to_owned()));
    request
}

/// Returns the retry of an `input_required` result, with an answer to each of `keys`.
pub(super) fn retry(state: &str, keys: &[&str]) -> Request {
    let mut responses = json!({});
    for key in keys {
        responses[key] = accepted();
    }
    request(&json!({"requestState": state, "inputResponses": responses}))
}

pub(super) fn accepted() -> Value {
    json!({"action": "accept", "content": {}})
}

pub(super) fn elicitation() -> RawInputRequest {
    let params =
        json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}});
    RawInputRequest::new(InputKind::Elicitation, Some(params.into()))
}

pub(super) fn result() -> Json {
    json!({"content": []}).into()
}

/// Returns the state and the keys of an `input_required` result.
pub(super) fn input_required(outcome: Outcome) -> (String, Vec<String>) {
    let result = outcome.expect("an `input_required` result");
    let result: InputRequiredResult = result.decode().expect("an `input_required` result");
    assert_eq!(result.result_type.to_string(), "input_required");
    let requests = result.input_requests.unwrap_or_default();
    let keys = requests.0.into_keys().collect();
    (result.request_state.expect("a state"), keys)
}

/// Returns the error of a refusal, as text.
pub(super) fn refusal(outcome: Result<impl std::fmt::Debug, RpcError>) -> String {
    let error = outcome.expect_err("a refusal");
    let data = error.data.as_ref().map_or("", Json::as_str);
    format!("{} {} {data}", error.code, error.message)
        .trim_end()
        .to_owned()
}

/// Lets every task that can run do so.
pub(super) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
