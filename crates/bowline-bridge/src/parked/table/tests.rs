//! Each row of the table of events.

use std::time::Duration;

use bowline::exchange::{Dialect, InputKind, request_digest};
use bowline::types::{ElicitationCapability, RootsCapability};
use bowline::{ErrorCode, RpcError};

use super::super::entry::BASE_BYTES;
use super::*;

/// A table with one principal, one request and a clock.
pub(super) struct TestTable {
    pub(super) table: CallTable,
    pub(super) now: Instant,
    pub(super) principal: Principal,
    pub(super) digest: Digest,
    pub(super) caller: Arc<Caller>,
}

impl TestTable {
    pub(super) fn new(settings: ParkSettings) -> Self {
        let modern = Dialect::LATEST;
        let mut caller = Caller::new(modern);
        caller.capabilities.elicitation = Some(ElicitationCapability::default());
        caller.capabilities.roots = Some(RootsCapability::default());
        Self {
            table: CallTable::new(settings),
            now: Instant::now(),
            principal: Principal::named("ada"),
            digest: request_digest("tools/call", None),
            caller: Arc::new(caller),
        }
    }

    pub(super) fn open(&mut self) -> Serial {
        let caller = self.caller.clone();
        self.table.open(self.principal.clone(), caller, 0)
    }

    pub(super) fn ask(&mut self, serial: Serial) -> Result<QuestionKey, QuestionRefusal> {
        self.table.ask(serial, elicitation(), self.now)
    }

    pub(super) fn park(&mut self, serial: Serial) -> Result<Round, Refusal> {
        self.table.park(serial, self.digest, Sent::Yes, self.now)
    }

    /// Retries with an answer to each of the keys.
    pub(super) fn retry(
        &mut self,
        serial: Serial,
        round: u32,
        keys: &[QuestionKey],
    ) -> Result<RetryAction, Refusal> {
        let responses = keys.iter().map(|key| (key.to_string(), accepted()));
        self.retry_with(serial, round, &responses.collect())
    }

    fn retry_with(
        &mut self,
        serial: Serial,
        round: u32,
        responses: &BTreeMap<String, Json>,
    ) -> Result<RetryAction, Refusal> {
        let retry = RetryEvent {
            serial,
            round,
            principal: &self.principal,
            digest: self.digest,
            caller: &self.caller,
            responses,
        };
        self.table.retry(&retry, self.now)
    }

    /// Opens a call and parks it with one question.
    fn parked(&mut self) -> (Serial, QuestionKey) {
        let serial = self.open();
        let key = self.ask(serial).unwrap();
        self.park(serial).unwrap();
        (serial, key)
    }

    fn after(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn table() -> TestTable {
    TestTable::new(ParkSettings::default())
}

pub(super) fn elicitation() -> RawInputRequest {
    let params = Json::parse(r#"{"message":"Sure?","requestedSchema":{}}"#).unwrap();
    RawInputRequest::new(InputKind::Elicitation, Some(params))
}

pub(super) fn accepted() -> Json {
    Json::parse(r#"{"action":"accept","content":{}}"#).unwrap()
}

fn result() -> Outcome {
    Ok(Json::parse(r#"{"content":[]}"#).unwrap())
}

#[test]
fn a_retry_of_the_round_attaches_the_call_with_its_answers() {
    let mut it = table();
    let (serial, key) = it.parked();

    let action = it.retry(serial, 1, &[key]);

    let answers = vec![(key, accepted())];
    assert_eq!(action, Ok(RetryAction::Attach { answers }));
}

#[test]
fn a_second_retry_and_one_of_an_older_round_are_refused_as_already_used() {
    let mut it = table();
    let (serial, key) = it.parked();
    it.retry(serial, 1, &[key]).unwrap();

    assert_eq!(it.retry(serial, 1, &[key]), Err(Refusal::AlreadyUsed));
    let key = it.ask(serial).unwrap();
    it.park(serial).unwrap();
    assert_eq!(it.retry(serial, 1, &[key]), Err(Refusal::AlreadyUsed));
    assert!(it.retry(serial, 2, &[key]).is_ok(), "nothing has changed");
}

#[test]
fn a_retry_for_another_principal_or_request_is_refused_and_changes_nothing() {
    let mut it = table();
    let (serial, key) = it.parked();

    let ada = std::mem::replace(&mut it.principal, Principal::named("bob"));
    assert_eq!(it.retry(serial, 1, &[key]), Err(Refusal::Foreign));
    it.principal = ada;
    let digest = std::mem::replace(&mut it.digest, request_digest("prompts/get", None));
    assert_eq!(it.retry(serial, 1, &[key]), Err(Refusal::Foreign));
    it.digest = digest;

    assert_eq!(it.retry(serial, 2, &[key]), Err(Refusal::Foreign));
    assert_eq!(it.retry(Serial(99), 1, &[key]), Err(Refusal::Foreign));
    assert!(it.retry(serial, 1, &[key]).is_ok());
}

#[test]
fn a_retry_without_some_answers_delivers_the_others_and_starts_a_new_round() {
    let mut it = table();
    let serial = it.open();
    let (first, second) = (it.ask(serial).unwrap(), it.ask(serial).unwrap());
    it.park(serial).unwrap();
    let late = it.ask(serial).unwrap();

    // The client cannot know the third question.
    let action = it.retry(serial, 1, &[first, late]).unwrap();

    let RetryAction::AskAgain { answers, round } = action else {
        panic!("{action:?}");
    };
    assert_eq!(answers, [(first, accepted())]);
    assert_eq!(round.number, 2);
    let keys: Vec<QuestionKey> = round.questions.iter().map(|it| it.0).collect();
    assert_eq!(keys, [second, late]);
    assert_eq!(it.retry(serial, 1, &[second]), Err(Refusal::AlreadyUsed));
    let action = it.retry(serial, 2, &[second, late]);
    assert!(matches!(action, Ok(RetryAction::Attach { .. })));
}

#[test]
fn an_answer_of_the_wrong_shape_is_refused_and_the_round_stays_usable() {
    let mut it = table();
    let (serial, key) = it.parked();
    let wrong = [(key.to_string(), Json::empty_object())].into();

    let refused = it.retry_with(serial, 1, &wrong);

    let error = RpcError::from(refused.unwrap_err());
    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
    assert!(error.message.starts_with("invalid answer to `q1`"));
    assert!(it.retry(serial, 1, &[key]).is_ok());
}

#[test]
fn an_answer_to_a_withdrawn_question_is_dropped() {
    let mut it = table();
    let (serial, key) = it.parked();
    it.table.withdraw(serial, key);

    let action = it.retry(serial, 1, &[key]);

    let answers = Vec::new();
    assert_eq!(action, Ok(RetryAction::Attach { answers }));
}

#[test]
fn an_outcome_that_arrives_while_parked_is_returned_by_one_retry() {
    let mut it = table();
    let (serial, key) = it.parked();

    assert_eq!(it.table.answered(serial, result()), AnsweredAction::Kept);

    assert_eq!(it.ask(serial), Err(QuestionRefusal::CallEnded));
    let outcome = result();
    let action = it.retry(serial, 1, &[key]);
    assert_eq!(action, Ok(RetryAction::Answer { outcome }));
    assert_eq!(it.retry(serial, 1, &[key]), Err(Refusal::AlreadyUsed));
    assert_eq!(it.table.used(), Usage::default());
}

#[test]
fn an_outcome_that_arrives_after_an_accepted_retry_is_passed_to_it() {
    let mut it = table();
    let (serial, key) = it.parked();
    it.retry(serial, 1, &[key]).unwrap();

    let action = it.table.answered(serial, result());

    assert_eq!(action, AnsweredAction::PassToRetry(result()));
}

#[test]
fn the_timeout_restarts_at_each_park_and_ends_the_call() {
    let mut it = table();
    let (serial, key) = it.parked();
    it.after(299);
    it.retry(serial, 1, &[key]).unwrap();
    let key = it.ask(serial).unwrap();
    let deadline = it.park(serial).unwrap().deadline;

    it.after(299);
    let early = it.table.expire(serial, it.now);
    it.after(1);
    let late = it.retry(serial, 2, &[key]);
    let expired = it.table.expire(serial, it.now);

    assert_eq!(early, Expiry::NotBefore(deadline));
    assert_eq!(late, Err(Refusal::Expired), "before the timer ran");
    assert_eq!(expired, Expiry::Ended);
    assert_eq!(it.retry(serial, 2, &[key]), Err(Refusal::Expired));
    assert_eq!(it.table.used(), Usage::default());
}

#[test]
fn a_call_is_parked_for_an_hour_in_all() {
    let mut it = table();
    let (serial, mut key) = it.parked();
    let start = it.now;
    for round in 1..12 {
        it.after(299);
        it.retry(serial, round, &[key]).unwrap();
        key = it.ask(serial).unwrap();
        it.park(serial).unwrap();
    }
    it.after(299);
    it.retry(serial, 12, &[key]).unwrap();
    key = it.ask(serial).unwrap();

    let last = it.park(serial).unwrap();
    it.after(11);
    it.retry(serial, 13, &[key]).unwrap();
    it.after(1);
    it.ask(serial).unwrap();
    let refused = it.park(serial).unwrap_err();

    assert_eq!(last.deadline, start + Duration::from_secs(3600));
    assert_eq!(last.seal_lifetime, Duration::from_secs(12 + 60));
    assert_eq!(refused, Refusal::ParkedTooLong);
    assert_eq!(it.retry(serial, 13, &[key]), Err(Refusal::Cancelled));
}

#[test]
fn a_tombstone_stays_as_long_as_the_seal() {
    let mut it = table();
    let (serial, key) = it.parked();
    it.table.end(serial, Ended::Cancelled, it.now);

    it.after(359);
    assert_eq!(it.retry(serial, 1, &[key]), Err(Refusal::Cancelled));
    it.after(1);

    // The seal has expired too. If a clock was set back, the answer is still a refusal.
    assert_eq!(it.retry(serial, 1, &[key]), Err(Refusal::Expired));
    assert_eq!(it.table.tombstones.len(), 0);
}

#[test]
fn a_call_that_was_never_parked_leaves_nothing() {
    let mut it = table();
    let serial = it.open();
    it.ask(serial).unwrap();

    it.table.end(serial, Ended::Answered, it.now);

    assert!(it.table.entries.is_empty());
    assert_eq!(it.table.tombstones.len(), 0);
}

#[test]
fn a_question_without_the_capability_gets_the_code_of_a_client_that_lacks_it() {
    let mut it = table();
    it.caller = Arc::new(Caller::new(it.caller.dialect));
    let serial = it.open();
    let cases = [
        (InputKind::Elicitation, ErrorCode::INVALID_PARAMS),
        (InputKind::Sampling, ErrorCode::METHOD_NOT_FOUND),
        (InputKind::Roots, ErrorCode::METHOD_NOT_FOUND),
    ];
    for (kind, code) in cases {
        let question = RawInputRequest::new(kind, None);

        let refused = it.table.ask(serial, question, it.now).unwrap_err();

        assert_eq!(RpcError::from(refused).code, code, "{kind}");
    }
    assert_eq!(it.table.ready_at(serial), None);
}

#[test]
fn a_retry_may_declare_other_capabilities() {
    let mut it = table();
    let (serial, key) = it.parked();
    it.caller = Arc::new(Caller::new(it.caller.dialect));
    it.retry(serial, 1, &[key]).unwrap();

    let refused = it.ask(serial);

    let unsupported = QuestionRefusal::Unsupported(InputKind::Elicitation);
    assert_eq!(refused, Err(unsupported));
}

#[test]
fn a_request_for_roots_parks_the_call_after_a_delay() {
    let mut it = table();
    let serial = it.open();
    let roots = RawInputRequest::new(InputKind::Roots, None);
    it.table.ask(serial, roots, it.now).unwrap();

    let delayed = it.table.ready_at(serial);
    it.ask(serial).unwrap();
    let at_once = it.table.ready_at(serial);

    assert_eq!(delayed, Some(it.now + Duration::from_millis(200)));
    assert_eq!(at_once, Some(it.now));
}

#[test]
fn a_call_over_budget_ends_and_may_have_run_unless_it_was_reserved() {
    let mut it = TestTable::new(ParkSettings {
        max_calls_each: 1,
        ..ParkSettings::default()
    });
    let (first, _) = it.parked();
    let (second, third) = (it.open(), it.open());
    it.ask(second).unwrap();

    let sent = RpcError::from(it.park(second).unwrap_err());
    let unsent = RpcError::from(it.table.reserve(third).unwrap_err());

    for (error, may_have_run) in [(&sent, "true"), (&unsent, "false")] {
        assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);
        assert_eq!(error.message, "too many parked calls");
        let data = error.data.as_ref().unwrap().as_str();
        assert!(data.contains(&format!(r#""mayHaveRun":{may_have_run}"#)));
    }
    assert_eq!(it.ask(second), Err(QuestionRefusal::CallEnded));
    it.table.end(first, Ended::Cancelled, it.now);
    assert_eq!(it.table.reserve(third), Ok(()));
}

/// Returns what a call without a question is charged with.
fn base_bytes() -> usize {
    let it = TestTable::new(ParkSettings::default());
    BASE_BYTES + it.caller.bytes()
}

#[test]
fn a_retry_whose_client_declares_too_much_is_refused_and_changes_nothing() {
    let mut it = TestTable::new(ParkSettings {
        max_bytes_each: base_bytes() + 100,
        ..ParkSettings::default()
    });
    let (serial, key) = it.parked();
    let (small, used) = (it.caller.clone(), it.table.used());
    let experimental = Arc::make_mut(&mut it.caller)
        .capabilities
        .experimental
        .get_or_insert_default();
    experimental.insert("x".repeat(200), Default::default());

    let refused = it.retry(serial, 1, &[key]);
    assert_eq!(refused, Err(Refusal::TooManyCalls(Sent::Yes)));
    assert_eq!(it.table.used(), used);

    it.caller = small;
    assert!(it.retry(serial, 1, &[key]).is_ok());
}

#[test]
fn an_outcome_over_budget_is_replaced_by_an_error_that_says_so() {
    let mut it = TestTable::new(ParkSettings {
        max_bytes_each: base_bytes() + 100,
        ..ParkSettings::default()
    });
    let (serial, key) = it.parked();
    let large = Json::from(serde_json::json!({"text": "x".repeat(200)}));

    it.table.answered(serial, Ok(large));

    let action = it.retry(serial, 1, &[key]);
    let Ok(RetryAction::Answer {
        outcome: Err(error),
    }) = action
    else {
        panic!("{action:?}");
    };
    assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);
    let data = error.data.unwrap();
    assert!(data.as_str().contains(r#""mayHaveRun":true"#), "{data}");
}

#[test]
fn a_question_over_budget_is_refused_while_the_call_is_parked() {
    let mut it = TestTable::new(ParkSettings {
        max_bytes_each: base_bytes() + 60,
        ..ParkSettings::default()
    });
    let (serial, key) = it.parked();

    assert_eq!(it.ask(serial), Err(QuestionRefusal::TooMany));

    let answers = vec![(key, accepted())];
    let action = it.retry(serial, 1, &[key]);
    assert_eq!(action, Ok(RetryAction::Attach { answers }));
}
