//! The client's side of a multi round-trip request: all rounds, from the first `input_required` to the last retry.
//!
//! ```text
//! next(result) ──▶ InputStep::Ask   the host answers each input request: `answer` ──▶ retry_params ──▶ next …
//!             └──▶ InputStep::Retry no input requests; wait a while ────────────────▶ retry_params ──▶ next …
//! ```
//!
//! Each retry is a new request with its own id. It contains the answers of the latest round only.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bowline_types::{Json, ResultType};

use super::{InputKind, RawInputRequest, may_need_input, member};
use crate::json::{Object, PickError, SplitError, pick};

/// The rounds of one request. Must not be reused for another request.
///
/// # Examples
///
/// ```
/// use bowline_core::input::{DEFAULT_MAX_ROUNDS, ClientRounds, InputStep};
/// use bowline_types::Json;
///
/// let params = Json::parse(r#"{"name":"greet"}"#)?;
/// let mut rounds = ClientRounds::new("tools/call", Some(params), DEFAULT_MAX_ROUNDS)?;
///
/// let result = r#"{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}"#;
/// let InputStep::Ask(requests) = rounds.next(&Json::parse(result)?)? else { unreachable!() };
/// for (key, _request) in &requests {
///     rounds.answer(key, Json::parse(r#"{"roots":[]}"#)?)?;
/// }
/// assert_eq!(
///     rounds.retry_params()?.as_str(),
///     r#"{"name":"greet","inputResponses":{"r":{"roots":[]}}}"#
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ClientRounds {
    method: Cow<'static, str>,
    /// An object.
    params: Json,
    max_rounds: u32,
    may_need_input: bool,
    round: u32,
    current: Option<CurrentRound>,
}

/// The current round.
#[derive(Debug)]
struct CurrentRound {
    /// The keys of `inputRequests`, in order.
    keys: Vec<String>,
    /// The input requests, by key.
    entries: BTreeMap<String, RoundEntry>,
    /// The JSON text of the string with its quotes and escapes: it must be returned verbatim.
    state: Option<Json>,
}

/// An input request of the current round and its answer so far.
#[derive(Debug)]
struct RoundEntry {
    request: RawInputRequest,
    answer: Option<Json>,
}

/// The next step of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an `input_required` has input requests or it does not"
)]
pub enum InputStep {
    /// Have the host answer all of these, in this order.
    Ask(Vec<(String, RawInputRequest)>),
    /// Send the request again without answers, after a delay that grows with [`ClientRounds::round`].
    Retry,
}

/// A protocol violation in an `input_required` result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputViolation {
    /// The method does not support `input_required`.
    #[error("received `input_required` for `{method}`, which does not support it")]
    NotAllowed {
        /// The method of the request.
        method: Cow<'static, str>,
    },
    /// Too many rounds. The specification sets no limit, but the loop must end.
    #[error("received `input_required` more than {max} times for one request")]
    TooManyRounds {
        /// The limit of rounds.
        max: u32,
    },
    /// Too many input requests in one round.
    #[error("`inputRequests` exceeds the limit of {max} entries")]
    TooManyInputRequests {
        /// The limit: [`MAX_INPUT_REQUESTS`].
        max: usize,
    },
    /// The result has neither input requests nor a state, so a retry would be identical.
    #[error("received `input_required` with neither `inputRequests` nor `requestState`")]
    Empty,
    /// A member has the wrong type.
    #[error("in an `input_required` result, `{member}` must be {expected}")]
    Member {
        /// The member.
        member: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// Two input requests have the same key.
    #[error("duplicate key `{key}` in `inputRequests`")]
    RepeatedKey {
        /// The key.
        key: String,
    },
    /// The method of an input request is not supported.
    #[error("unsupported method `{method}` of the input request `{key}`")]
    UnsupportedMethod {
        /// The key.
        key: String,
        /// The method.
        method: String,
    },
    /// An input request is not of the form `{method, params}`.
    #[error("malformed input request `{key}`: {why}")]
    MalformedInputRequest {
        /// The key.
        key: String,
        /// The defect.
        why: &'static str,
    },
}

/// RoundsMisuse of [`ClientRounds`] by its caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoundsMisuse {
    /// The params are not an object.
    #[error("request params must be an object")]
    ParamsNotAnObject,
    /// There is no current round.
    #[error("no `input_required` result to answer")]
    NoRound,
    /// The current round has no input request with this key.
    #[error("no input request with the key `{key}`")]
    NotAsked {
        /// The key.
        key: String,
    },
    /// The answer has the wrong shape for its input request.
    #[error("invalid answer to `{key}`: {why}")]
    WrongAnswer {
        /// The key of the input request.
        key: String,
        /// The expected shape.
        why: &'static str,
    },
    /// Input requests are unanswered; the server would only repeat them.
    #[error("unanswered input requests: {}", .keys.join(", "))]
    Unanswered {
        /// The keys of the unanswered input requests.
        keys: Vec<String>,
    },
}

/// Returns whether the `resultType` is `input_required`.
#[must_use]
pub fn is_input_required(result: &Json) -> bool {
    pick(result, [member::RESULT_TYPE]).is_ok_and(|[kind]| {
        let kind = kind.as_ref().map(Json::decode);
        matches!(kind, Some(Ok(kind)) if ResultType::INPUT_REQUIRED == kind)
    })
}

impl ClientRounds {
    /// Creates the rounds of a request, before or after it is sent.
    ///
    /// `max_rounds` is usually [`DEFAULT_MAX_ROUNDS`].
    ///
    /// # Errors
    ///
    /// If `params` is not an object.
    pub fn new(
        method: impl Into<Cow<'static, str>>,
        params: Option<Json>,
        max_rounds: u32,
    ) -> Result<Self, RoundsMisuse> {
        let method = method.into();
        let params = params.unwrap_or_else(Json::empty_object);
        if !params.is_object() {
            return Err(RoundsMisuse::ParamsNotAnObject);
        }
        Ok(Self {
            may_need_input: may_need_input(&method),
            method,
            params,
            max_rounds,
            round: 0,
            current: None,
        })
    }

    /// Allows `input_required` for a method that an extension defines so.
    #[must_use]
    pub fn allow_input(mut self) -> Self {
        self.may_need_input = true;
        self
    }

    /// Returns the number of rounds so far.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Starts the next round from an `input_required` result, and returns what to do.
    ///
    /// Discards the previous round and its state.
    ///
    /// # Errors
    ///
    /// If the result violates the protocol or exceeds the limit of rounds. The request has failed then.
    pub fn next(&mut self, result: &Json) -> Result<InputStep, InputViolation> {
        self.current = None;
        if !self.may_need_input {
            let method = self.method.clone();
            return Err(InputViolation::NotAllowed { method });
        }
        if self.round == self.max_rounds {
            return Err(InputViolation::TooManyRounds {
                max: self.max_rounds,
            });
        }
        let current = CurrentRound::read(result)?;
        self.round += 1;
        let step = if current.keys.is_empty() {
            InputStep::Retry
        } else {
            InputStep::Ask(current.input_requests())
        };
        self.current = Some(current);
        Ok(step)
    }

    /// Answers an input request of the current round. Until the retry, a later answer replaces an earlier one.
    ///
    /// # Errors
    ///
    /// If the round has no such input request, or the answer has the wrong shape.
    pub fn answer(&mut self, key: &str, answer: Json) -> Result<(), RoundsMisuse> {
        let current = self.current.as_mut().ok_or(RoundsMisuse::NoRound)?;
        let key = key.to_owned();
        let Some(entry) = current.entries.get_mut(&key) else {
            return Err(RoundsMisuse::NotAsked { key });
        };
        if let Err(why) = entry.request.kind.check_answer(&answer) {
            return Err(RoundsMisuse::WrongAnswer { key, why });
        }
        entry.answer = Some(answer);
        Ok(())
    }

    /// Returns the params of the retry: those of the request, the answers, and the state verbatim.
    ///
    /// # Errors
    ///
    /// If an input request is unanswered.
    pub fn retry_params(&self) -> Result<Json, RoundsMisuse> {
        let current = self.current.as_ref().ok_or(RoundsMisuse::NoRound)?;
        let mut responses = Vec::with_capacity(current.keys.len());
        let mut open = Vec::new();
        for key in &current.keys {
            match current
                .entries
                .get(key)
                .and_then(|entry| entry.answer.as_ref())
            {
                Some(answer) => responses.push((key.as_str(), answer)),
                None => open.push(key.clone()),
            }
        }
        if !open.is_empty() {
            return Err(RoundsMisuse::Unanswered { keys: open });
        }
        let mut params = Object::read(&self.params).map_err(|_| RoundsMisuse::ParamsNotAnObject)?;
        // A caller that resumes a request may have passed those of an earlier round.
        params.remove(member::INPUT_RESPONSES);
        params.remove(member::REQUEST_STATE);
        if !responses.is_empty() {
            params.set(member::INPUT_RESPONSES, Json::object(responses));
        }
        if let Some(state) = &current.state {
            params.set(member::REQUEST_STATE, state.clone());
        }
        Ok(params.to_json())
    }
}

impl CurrentRound {
    fn read(result: &Json) -> Result<Self, InputViolation> {
        let names = [member::REQUEST_STATE, member::INPUT_REQUESTS];
        let [state, requests] = pick(result, names).map_err(|why| InputViolation::Member {
            member: "result",
            expected: match why {
                PickError::NotAnObject(_) => "an object",
                PickError::Duplicate(_) => "an object without duplicate members",
            },
        })?;
        let state = state.filter(|value| !value.is_null());
        let requests = requests.filter(|value| !value.is_null());
        if state.is_none() && requests.is_none() {
            return Err(InputViolation::Empty);
        }
        if state
            .as_ref()
            .is_some_and(|state| state.as_bytes().first() != Some(&b'"'))
        {
            return Err(InputViolation::Member {
                member: member::REQUEST_STATE,
                expected: "a string",
            });
        }
        let mut current = Self {
            keys: Vec::new(),
            entries: BTreeMap::new(),
            state,
        };
        if let Some(requests) = requests {
            current.read_input_requests(&requests)?;
        }
        Ok(current)
    }

    fn read_input_requests(&mut self, requests: &Json) -> Result<(), InputViolation> {
        let max = MAX_INPUT_REQUESTS;
        let requests = Object::read_at_most(requests, max).map_err(|why| match why {
            SplitError::TooManyMembers { max } => InputViolation::TooManyInputRequests { max },
            SplitError::NotAnObject(_) => InputViolation::Member {
                member: member::INPUT_REQUESTS,
                expected: "an object",
            },
        })?;
        for (key, request) in requests.iter() {
            let entry = RoundEntry {
                request: read_input_request(key, request)?,
                answer: None,
            };
            if self.entries.insert(key.to_owned(), entry).is_some() {
                let key = key.to_owned();
                return Err(InputViolation::RepeatedKey { key });
            }
            self.keys.push(key.to_owned());
        }
        Ok(())
    }

    fn input_requests(&self) -> Vec<(String, RawInputRequest)> {
        let request = |key: &String| {
            let entry = self.entries.get(key)?;
            Some((key.clone(), entry.request.clone()))
        };
        self.keys.iter().filter_map(request).collect()
    }
}

fn read_input_request(key: &str, request: &Json) -> Result<RawInputRequest, InputViolation> {
    let malformed = |why| InputViolation::MalformedInputRequest {
        key: key.to_owned(),
        why,
    };
    let [method, params] = pick(request, ["method", "params"]).map_err(|why| match why {
        PickError::NotAnObject(_) => malformed("expected an object"),
        PickError::Duplicate(_) => malformed("duplicate members"),
    })?;
    let Some(Ok(method)) = method.as_ref().map(Json::text) else {
        return Err(malformed("`method` must be a string"));
    };
    let Some(kind) = InputKind::from_method(&method) else {
        return Err(InputViolation::UnsupportedMethod {
            key: key.to_owned(),
            method: method.into_owned(),
        });
    };
    let params = params.filter(|params| !params.is_null());
    match (kind, params) {
        (_, Some(params)) if !params.is_object() => {
            Err(malformed("`params` must be a JSON object"))
        }
        (InputKind::Elicitation | InputKind::Sampling, None) => Err(malformed("missing `params`")),
        (_, params) => Ok(RawInputRequest::new(kind, params)),
    }
}

/// The maximum number of entries in `inputRequests` and in `inputResponses`: 1,000.
///
/// A server built with this crate reaches [`DEFAULT_MAX_STATE_BYTES`](super::DEFAULT_MAX_STATE_BYTES) first.
pub const MAX_INPUT_REQUESTS: usize = 1_000;

/// The default maximum number of rounds per request.
pub const DEFAULT_MAX_ROUNDS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const ROOTS: &str =
        r#"{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}"#;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).unwrap()
    }

    fn rounds() -> ClientRounds {
        ClientRounds::new("tools/call", Some(json(r#"{"name":"t"}"#)), 3).unwrap()
    }

    fn violation(result: &str) -> InputViolation {
        rounds().next(&json(result)).unwrap_err()
    }

    #[test]
    fn the_state_is_returned_verbatim() {
        for state in [
            r#""""#,
            r#""plain""#,
            r#""\u0041\/\u00e9 é \ud83d\ude00""#,
            r#""{\"not\": \"parsed\"}\r\n""#,
            r#""\ud800""#,
        ] {
            let mut rounds = rounds();
            let result = json(&format!(r#"{{ "requestState" : {state} }}"#));

            let step = rounds.next(&result).unwrap();

            assert_eq!(step, InputStep::Retry);
            assert_eq!(
                rounds.retry_params().unwrap().as_str(),
                format!(r#"{{"name":"t","requestState":{state}}}"#)
            );
        }
    }

    #[test]
    fn a_state_of_an_earlier_round_is_not_sent_when_the_newer_has_none() {
        let mut rounds = rounds();
        rounds.next(&json(r#"{"requestState":"old"}"#)).unwrap();

        rounds.next(&json(ROOTS)).unwrap();
        rounds.answer("r", json(r#"{"roots":[]}"#)).unwrap();

        assert_eq!(
            rounds.retry_params().unwrap().as_str(),
            r#"{"name":"t","inputResponses":{"r":{"roots":[]}}}"#
        );
    }

    #[test]
    fn answers_of_an_earlier_round_are_not_sent_again() {
        let mut rounds = rounds();
        rounds.next(&json(ROOTS)).unwrap();
        rounds.answer("r", json(r#"{"roots":[]}"#)).unwrap();

        rounds.next(&json(r#"{"requestState":"s"}"#)).unwrap();

        assert_eq!(
            rounds.retry_params().unwrap().as_str(),
            r#"{"name":"t","requestState":"s"}"#
        );
    }

    #[test]
    fn answers_and_state_in_the_first_params_are_replaced() {
        let params = json(r#"{"requestState":"old","name":"t","inputResponses":{"x":1}}"#);
        let mut rounds = ClientRounds::new("prompts/get", Some(params), 1).unwrap();

        rounds.next(&json(r#"{"requestState":"new"}"#)).unwrap();

        assert_eq!(
            rounds.retry_params().unwrap().as_str(),
            r#"{"name":"t","requestState":"new"}"#
        );
    }

    #[test]
    fn more_rounds_than_the_limit_are_a_violation() {
        let mut rounds = rounds();
        for round in 1..=3 {
            rounds.next(&json(r#"{"requestState":"s"}"#)).unwrap();
            assert_eq!(rounds.round(), round);
        }

        let violation = rounds.next(&json(ROOTS)).unwrap_err();

        assert_eq!(violation, InputViolation::TooManyRounds { max: 3 });
        assert_eq!(
            violation.to_string(),
            "received `input_required` more than 3 times for one request"
        );
        assert_eq!(rounds.retry_params(), Err(RoundsMisuse::NoRound));
    }

    #[test]
    fn input_required_with_neither_input_requests_nor_state_is_a_violation() {
        for result in [
            r#"{"resultType":"input_required"}"#,
            r#"{"inputRequests":null,"requestState":null}"#,
        ] {
            assert_eq!(violation(result), InputViolation::Empty);
        }
    }

    #[test]
    fn input_required_for_a_method_that_may_not_need_any_is_a_violation() {
        let mut listing = ClientRounds::new("tools/list", None, 3).unwrap();
        let mut extended = ClientRounds::new("acme/order", None, 3)
            .unwrap()
            .allow_input();

        let refused = listing.next(&json(ROOTS));

        let method = Cow::Borrowed("tools/list");
        assert_eq!(refused, Err(InputViolation::NotAllowed { method }));
        assert!(extended.next(&json(ROOTS)).is_ok());
    }

    #[test]
    fn an_input_request_with_an_unsupported_method_is_named() {
        let violation = violation(r#"{"inputRequests":{"k":{"method":"tools/call"}}}"#);

        assert_eq!(
            violation.to_string(),
            "unsupported method `tools/call` of the input request `k`"
        );
    }

    #[test]
    fn malformed_input_requests_are_violations() {
        for result in [
            "7",
            r#"{"requestState":7}"#,
            r#"{"inputRequests":[]}"#,
            r#"{"inputRequests":{"k":7}}"#,
            r#"{"inputRequests":{"k":{}}}"#,
            r#"{"inputRequests":{"k":{"method":7}}}"#,
            r#"{"inputRequests":{"k":{"method":"elicitation/create"}}}"#,
            r#"{"inputRequests":{"k":{"method":"roots/list","params":[]}}}"#,
            r#"{"inputRequests":{"k":{"method":"roots/list"},"k":{"method":"roots/list"}}}"#,
        ] {
            assert!(rounds().next(&json(result)).is_err(), "{result} passed");
        }
    }

    fn input_required(count: usize) -> Json {
        let request = |key| format!(r#""{key}":{{"method":"roots/list"}}"#);
        let requests: Vec<_> = (0..count).map(request).collect();
        json(&format!(
            r#"{{"inputRequests":{{{}}}}}"#,
            requests.join(",")
        ))
    }

    #[test]
    fn a_round_with_the_maximum_of_input_requests_is_answered_in_order() {
        let mut rounds = rounds();
        let InputStep::Ask(requests) = rounds.next(&input_required(MAX_INPUT_REQUESTS)).unwrap()
        else {
            panic!("expected input requests");
        };

        for (key, _) in requests.iter().rev() {
            rounds.answer(key, json(r#"{"roots":[]}"#)).unwrap();
        }

        let params = rounds.retry_params().unwrap();
        let responses = Object::read(&params).unwrap();
        let responses = responses.member("inputResponses").unwrap();
        let sent = Object::read(responses).unwrap();
        let keys = requests.iter().map(|(key, _)| key.as_str());
        assert!(sent.iter().map(|(key, _)| key).eq(keys));
    }

    /// Regression test: searching all input requests for each answer took 9 s for 1.4 MB of them.
    #[test]
    fn more_input_requests_than_the_limit_are_a_violation() {
        for count in [MAX_INPUT_REQUESTS + 1, 40_000] {
            let violation = rounds().next(&input_required(count)).unwrap_err();

            let max = MAX_INPUT_REQUESTS;
            assert_eq!(violation, InputViolation::TooManyInputRequests { max });
        }
    }

    #[test]
    fn a_retry_waits_for_every_answer() {
        let mut rounds = rounds();
        let request = r#"{"method":"roots/list"}"#;
        let result = format!(r#"{{"inputRequests":{{"b":{request},"a":{request}}}}}"#);

        rounds.next(&json(&result)).unwrap();
        rounds.answer("a", json(r#"{"roots":[]}"#)).unwrap();

        let keys = vec!["b".to_owned()];
        assert_eq!(
            rounds.retry_params(),
            Err(RoundsMisuse::Unanswered { keys })
        );
    }

    #[test]
    fn an_answer_must_match_an_input_request_of_this_round() {
        let mut rounds = rounds();
        let roots = json(r#"{"roots":[]}"#);
        assert_eq!(
            rounds.answer("r", roots.clone()),
            Err(RoundsMisuse::NoRound)
        );

        rounds.next(&json(ROOTS)).unwrap();

        let key = "x".to_owned();
        assert_eq!(
            rounds.answer("x", roots),
            Err(RoundsMisuse::NotAsked { key })
        );
        assert!(matches!(
            rounds.answer("r", json(r#"{"action":"accept"}"#)),
            Err(RoundsMisuse::WrongAnswer { .. })
        ));
    }

    #[test]
    fn only_the_result_type_marks_input_as_required() {
        assert!(is_input_required(&json(ROOTS)));
        assert!(is_input_required(&json(
            r#"{"resultType":"input\u005frequired"}"#
        )));
        for other in [
            "[]",
            "{}",
            r#"{"resultType":"complete","inputRequests":{}}"#,
            r#"{"resultType":7}"#,
        ] {
            assert!(!is_input_required(&json(other)), "{other}");
        }
    }
}
