//! The server's side of a multi round-trip request: one round, that is, one run of a handler.
//!
//! A handler runs from its beginning in every round. An input request that was answered before returns its answer; new
//! ones are collected, and the round ends when the handler cannot continue without them. To terminate, a handler must
//! make the same input requests under the same keys whenever it runs with the same answers.

use std::collections::BTreeMap;

use bowline_types::{ErrorCode, Json, ResultType, RpcError};
use serde_json::Value;

use super::request_state::{
    InvalidRequestState, OpenInputRequest, RequestState, RequestStateTooLarge, StoredAnswer,
};
use super::{Digest, MAX_INPUT_REQUESTS, RawInputRequest, member};
use crate::json::{Object, Params, PickError, SplitError};

/// One run of a handler that may request input.
///
/// # Examples
///
/// ```
/// use bowline_core::input::{
///     DEFAULT_MAX_STATE_BYTES, InputKind, InputStatus, RawInputRequest, ServerRound,
/// };
/// use bowline_core::json::Params;
/// use bowline_types::Json;
///
/// let request = RawInputRequest::new(InputKind::Roots, None);
/// let mut round = ServerRound::open(&Params::none(), None)?;
/// assert_eq!(round.ask("where", request.clone())?, InputStatus::Pending);
/// let required = round.finish(DEFAULT_MAX_STATE_BYTES)?.expect("an input request is open");
///
/// let retry = Json::parse(r#"{"inputResponses":{"where":{"roots":[]}}}"#)?;
/// let mut round = ServerRound::open(&retry.into(), Some(&required.state))?;
/// let answer = Json::parse(r#"{"roots":[]}"#)?;
/// assert_eq!(round.ask("where", request)?, InputStatus::Answered(answer));
/// assert!(round.finish(DEFAULT_MAX_STATE_BYTES)?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ServerRound {
    /// All `inputResponses` of the request, requested or not.
    received: BTreeMap<String, Json>,
    answered: BTreeMap<String, StoredAnswer>,
    remembered: BTreeMap<String, Json>,
    /// All input requests of this round, answered or not.
    asked: BTreeMap<String, Digest>,
    /// The unanswered ones, to be sent to the client.
    pending: BTreeMap<String, RawInputRequest>,
}

/// The result of [`ServerRound::ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an input request is answered or it is not"
)]
pub enum InputStatus {
    /// The client's answer to this exact input request.
    Answered(Json),
    /// The input request is sent to the client when the round ends.
    Pending,
}

/// The end of a round with unanswered input requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputRequired {
    /// The `inputRequests`, by key.
    pub input_requests: BTreeMap<String, RawInputRequest>,
    /// The state for the next round, in plain text. Encrypt it before sending it.
    pub state: Vec<u8>,
}

/// A key names two different input requests in one round, so its answer would be ambiguous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key `{key}` is used for two different input requests")]
#[non_exhaustive]
pub struct KeyReused {
    /// The key.
    pub key: String,
}

/// The reason a retry is rejected. A retry is the request of the next round.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetryRejection {
    /// A member has the wrong type.
    #[error("`{member}` must be {expected}")]
    Member {
        /// The member.
        member: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// An answer has the wrong shape for its input request.
    #[error("invalid answer to `{key}`: {why}")]
    Answer {
        /// The key of the input request.
        key: String,
        /// The expected shape.
        why: &'static str,
    },
    /// `inputResponses` has too many entries.
    #[error("`inputResponses` exceeds the limit of {max} entries")]
    TooManyAnswers {
        /// The limit: [`MAX_INPUT_REQUESTS`].
        max: usize,
    },
    /// The state cannot be decoded.
    #[error(transparent)]
    State(#[from] InvalidRequestState),
}

/// Returns the encrypted `requestState` of a request.
///
/// # Errors
///
/// If it is not a string.
pub fn sealed_request_state(params: &Params) -> Result<Option<String>, RetryRejection> {
    let wrong = || RetryRejection::Member {
        member: member::REQUEST_STATE,
        expected: "a string",
    };
    match params
        .member(member::REQUEST_STATE)
        .map_err(invalid_params)?
    {
        None => Ok(None),
        Some(state) => state.decode().map_err(|_| wrong()),
    }
}

impl ServerRound {
    /// Starts a round: the first without a state, later ones with the decrypted state of the previous round.
    ///
    /// An answer in `params` counts only if the previous round requested it, so without a state none does. Others are
    /// ignored, unless [`ServerRound::accept_unsolicited`] accepts them.
    ///
    /// # Errors
    ///
    /// If the state cannot be decoded, an answer that counts has the wrong shape, or there are more than
    /// [`MAX_INPUT_REQUESTS`] answers.
    pub fn open(params: &Params, state: Option<&[u8]>) -> Result<Self, RetryRejection> {
        let RequestState {
            asked,
            mut answered,
            remembered,
            ..
        } = state
            .map(RequestState::decode)
            .transpose()?
            .unwrap_or_default();
        let responses = input_responses(params)?.unwrap_or_else(Json::empty_object);
        let mut received = BTreeMap::new();
        for (key, answer) in read_responses(&responses)?.iter() {
            received
                .entry(key.to_owned())
                .or_insert_with(|| answer.clone());
            let Some(OpenInputRequest(kind, digest)) = asked.get(key) else {
                continue;
            };
            kind.check_answer(answer)
                .map_err(|why| RetryRejection::Answer {
                    key: key.to_owned(),
                    why,
                })?;
            answered.insert(key.to_owned(), StoredAnswer(*digest, answer.clone()));
        }
        Ok(Self {
            received,
            answered,
            remembered,
            ..Self::default()
        })
    }

    /// Accepts an unsolicited answer to this input request, if `inputResponses` has one. A malformed one is ignored.
    ///
    /// Do not use it for consent: the user has not seen the input request.
    pub fn accept_unsolicited(&mut self, key: &str, request: &RawInputRequest) {
        if self.answered.contains_key(key) {
            return;
        }
        if let Some(answer) = self.received.get(key)
            && request.kind.check_answer(answer).is_ok()
        {
            let answered = StoredAnswer(request.digest(), answer.clone());
            self.answered.insert(key.to_owned(), answered);
        }
    }

    /// Returns the answer to this exact input request, or queues it to be sent to the client when the round ends.
    ///
    /// The same key returns the same answer again, so a loop that asks until an answer is valid must change the key
    /// each time. An input request that changed since it was answered counts as a new one.
    ///
    /// # Errors
    ///
    /// If the key was used for another input request in this round.
    pub fn ask(&mut self, key: &str, request: RawInputRequest) -> Result<InputStatus, KeyReused> {
        let digest = request.digest();
        let first = *self.asked.entry(key.to_owned()).or_insert(digest);
        if first != digest {
            let key = key.to_owned();
            return Err(KeyReused { key });
        }
        match self.answered.get(key) {
            Some(StoredAnswer(answered, answer)) if *answered == digest => {
                Ok(InputStatus::Answered(answer.clone()))
            }
            _ => {
                self.pending.insert(key.to_owned(), request);
                Ok(InputStatus::Pending)
            }
        }
    }

    /// Withdraws an input request that the handler no longer waits for.
    pub fn withdraw(&mut self, key: &str) {
        self.pending.remove(key);
    }

    /// Returns the value that this or an earlier round stored under `key`.
    #[must_use]
    pub fn recall(&self, key: &str) -> Option<&Json> {
        self.remembered.get(key)
    }

    /// Stores `value` for later rounds. Values and input requests have separate keys.
    pub fn remember(&mut self, key: &str, value: Json) {
        self.remembered.insert(key.to_owned(), value);
    }

    /// Returns whether an input request is unanswered.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ends the round. Returns the unanswered input requests, or `None` if all are answered.
    ///
    /// # Errors
    ///
    /// If the state exceeds `limit` bytes.
    pub fn finish(self, limit: usize) -> Result<Option<InputRequired>, RequestStateTooLarge> {
        if !self.is_pending() {
            return Ok(None);
        }
        let mut state = RequestState::new(self.answered, self.remembered);
        for (key, request) in &self.pending {
            // Remove the answer to an earlier input request with this key.
            state.answered.remove(key);
            let open = OpenInputRequest(request.kind, self.asked[key]);
            state.asked.insert(key.clone(), open);
        }
        Ok(Some(InputRequired {
            input_requests: self.pending,
            state: state.encode(limit)?,
        }))
    }
}

impl InputRequired {
    /// Returns the `input_required` result with the encrypted state.
    #[must_use]
    pub fn to_result(&self, sealed_state: &str) -> Json {
        let requests = self.input_requests.iter();
        let requests: BTreeMap<_, _> = requests
            .map(|(key, request)| (key.as_str(), request.to_json()))
            .collect();
        let requests = Json::object(requests.iter().map(|(key, json)| (*key, json)));
        let mut result = Object::default();
        let result_type = ResultType::INPUT_REQUIRED.to_string();
        result.set(member::RESULT_TYPE, Value::from(result_type).into());
        result.set(member::INPUT_REQUESTS, requests);
        result.set(member::REQUEST_STATE, Value::from(sealed_state).into());
        result.to_json()
    }
}

impl RetryRejection {
    /// Returns the JSON-RPC error for the client.
    #[must_use]
    pub fn to_rpc_error(&self) -> RpcError {
        RpcError::new(ErrorCode::INVALID_PARAMS, self.to_string())
    }
}

/// Returns `inputResponses`; `null` counts as absent.
fn input_responses(params: &Params) -> Result<Option<Json>, RetryRejection> {
    let responses = params
        .member(member::INPUT_RESPONSES)
        .map_err(invalid_params)?;
    Ok(responses.filter(|it| !it.is_null()))
}

fn read_responses(responses: &Json) -> Result<Object<'_>, RetryRejection> {
    Object::read_at_most(responses, MAX_INPUT_REQUESTS).map_err(|why| match why {
        SplitError::TooManyMembers { max } => RetryRejection::TooManyAnswers { max },
        SplitError::NotAnObject(_) => RetryRejection::Member {
            member: member::INPUT_RESPONSES,
            expected: "an object",
        },
    })
}

#[allow(clippy::needless_pass_by_value, reason = "used with `map_err`")]
fn invalid_params(why: PickError) -> RetryRejection {
    RetryRejection::Member {
        member: "params",
        expected: match why {
            PickError::NotAnObject(_) => "an object",
            PickError::Duplicate(_) => "an object without duplicate members",
        },
    }
}

/// The default limit of the request state: 64 KiB.
pub const DEFAULT_MAX_STATE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use bowline_types::{InputRequest, InputRequiredResult};

    use super::super::InputKind;
    use super::*;

    fn json(text: &'static str) -> Json {
        Json::parse(text).unwrap()
    }

    fn form(message: &str) -> RawInputRequest {
        let params = serde_json::json!({"message": message, "requestedSchema": {}});
        RawInputRequest::new(InputKind::Elicitation, Some(params.into()))
    }

    /// Returns the state after a first round with these input requests.
    fn state_after(requests: &[(&str, RawInputRequest)]) -> Vec<u8> {
        let mut round = ServerRound::open(&Params::none(), None).unwrap();
        for (key, request) in requests {
            assert_eq!(round.ask(key, request.clone()), Ok(InputStatus::Pending));
        }
        round.finish(1000).unwrap().unwrap().state
    }

    #[test]
    fn a_round_without_input_requests_requires_no_input() {
        let mut round = ServerRound::open(&json(r#"{"name":"t"}"#).into(), None).unwrap();
        round.remember("x", Json::null());

        assert!(!round.is_pending());
        assert_eq!(round.finish(0).unwrap(), None);
    }

    #[test]
    fn all_input_requests_of_a_round_are_sent_together_in_key_order() {
        let mut round = ServerRound::open(&Params::none(), None).unwrap();
        round
            .ask("b", RawInputRequest::new(InputKind::Roots, None))
            .unwrap();
        round.ask("a", form("Who?")).unwrap();

        let result = round.finish(1000).unwrap().unwrap().to_result("sealed");

        assert_eq!(
            result.as_str(),
            concat!(
                r#"{"resultType":"input_required","inputRequests":{"#,
                r#""a":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{}}},"#,
                r#""b":{"method":"roots/list"}},"requestState":"sealed"}"#
            )
        );
    }

    #[test]
    fn a_withdrawn_input_request_is_not_sent() {
        let mut round = ServerRound::open(&Params::none(), None).unwrap();
        round.ask("a", form("Who?")).unwrap();
        round.ask("b", form("Why?")).unwrap();

        round.withdraw("a");
        round.withdraw("never asked");

        let required = round.finish(1000).unwrap().unwrap();
        assert_eq!(required.input_requests.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn the_result_decodes_as_an_input_required_result() {
        let mut round = ServerRound::open(&Params::none(), None).unwrap();
        round
            .ask("b", RawInputRequest::new(InputKind::Roots, None))
            .unwrap();

        let result = round.finish(1000).unwrap().unwrap().to_result("sealed");

        let result: InputRequiredResult = result.decode().unwrap();
        assert_eq!(result.result_type, ResultType::INPUT_REQUIRED);
        assert_eq!(result.request_state.as_deref(), Some("sealed"));
        assert_eq!(
            result.input_requests.unwrap().0["b"],
            InputRequest::ListRoots(None)
        );
    }

    #[test]
    fn an_unsolicited_answer_is_ignored() {
        let state = state_after(&[("who", form("Who?"))]);
        let retry = json(r#"{"inputResponses":{"other":{"action":"accept"},"odd":7}}"#);

        let mut round = ServerRound::open(&retry.into(), Some(&state)).unwrap();

        assert_eq!(round.ask("other", form("Who?")), Ok(InputStatus::Pending));
        assert_eq!(round.ask("who", form("Who?")), Ok(InputStatus::Pending));
    }

    #[test]
    fn more_answers_than_the_limit_are_rejected() {
        let answers: Vec<_> = (0..=MAX_INPUT_REQUESTS)
            .map(|key| format!(r#""{key}":{{"roots":[]}}"#))
            .collect();
        let retry = format!(r#"{{"inputResponses":{{{}}}}}"#, answers.join(","));

        let refused = ServerRound::open(&Json::parse(retry).unwrap().into(), None).unwrap_err();

        assert_eq!(
            refused.to_rpc_error().message,
            "`inputResponses` exceeds the limit of 1000 entries"
        );
    }

    #[test]
    fn without_a_state_no_answer_counts() {
        let retry = json(r#"{"inputResponses":{"who":{"action":"accept"}}}"#);

        let mut round = ServerRound::open(&retry.into(), None).unwrap();

        assert_eq!(round.ask("who", form("Who?")), Ok(InputStatus::Pending));
    }

    #[test]
    fn a_changed_input_request_is_sent_again_and_its_old_answer_is_dropped() {
        let state = state_after(&[("sure", form("Delete 1 file?"))]);
        let retry = json(r#"{"inputResponses":{"sure":{"action":"accept"}}}"#);
        let mut round = ServerRound::open(&retry.into(), Some(&state)).unwrap();

        let asked = round.ask("sure", form("Delete 900 files?"));

        assert_eq!(asked, Ok(InputStatus::Pending));
        let state = round.finish(1000).unwrap().unwrap().state;
        let mut round = ServerRound::open(&Params::none(), Some(&state)).unwrap();
        assert_eq!(
            round.ask("sure", form("Delete 1 file?")),
            Ok(InputStatus::Pending)
        );
    }

    #[test]
    fn the_first_answer_is_kept_when_a_later_round_answers_again() {
        let state = state_after(&[("a", form("A?"))]);
        let first = json(r#"{"inputResponses":{"a":{"action":"decline"}}}"#);
        let mut round = ServerRound::open(&first.into(), Some(&state)).unwrap();
        round.ask("a", form("A?")).unwrap();
        round.ask("b", form("B?")).unwrap();
        let state = round.finish(1000).unwrap().unwrap().state;

        let again = json(r#"{"inputResponses":{"a":{"action":"accept"}}}"#);
        let mut round = ServerRound::open(&again.into(), Some(&state)).unwrap();

        let declined = json(r#"{"action":"decline"}"#);
        assert_eq!(
            round.ask("a", form("A?")),
            Ok(InputStatus::Answered(declined))
        );
    }

    #[test]
    fn one_key_for_two_input_requests_is_an_error_and_for_the_same_one_is_not() {
        let mut round = ServerRound::open(&Params::none(), None).unwrap();
        round.ask("k", form("A?")).unwrap();

        assert_eq!(round.ask("k", form("A?")), Ok(InputStatus::Pending));
        assert_eq!(round.ask("k", form("B?")).unwrap_err().key, "k");
    }

    #[test]
    fn an_unsolicited_answer_counts_if_the_handler_accepts_it() {
        let params = json(r#"{"inputResponses":{"who":{"action":"decline"},"other":7}}"#);
        let mut round = ServerRound::open(&params.into(), None).unwrap();

        round.accept_unsolicited("who", &form("Who?"));

        let answer = InputStatus::Answered(json(r#"{"action":"decline"}"#));
        assert_eq!(round.ask("who", form("Who?")), Ok(answer));
        assert!(!round.is_pending());
    }

    #[test]
    fn an_unsolicited_answer_of_the_wrong_shape_is_ignored() {
        for text in [
            r#"{"inputResponses":{"who":12345}}"#,
            r#"{"inputResponses":{"whom":{"action":"decline"}}}"#,
            r#"{"inputResponses":null}"#,
        ] {
            let mut round = ServerRound::open(&json(text).into(), None).unwrap();

            round.accept_unsolicited("who", &form("Who?"));

            assert_eq!(
                round.ask("who", form("Who?")),
                Ok(InputStatus::Pending),
                "{text}"
            );
        }
    }

    #[test]
    fn a_solicited_answer_is_not_replaced_by_an_unsolicited_one() {
        let state = state_after(&[("who", form("Who?"))]);
        let params = json(r#"{"inputResponses":{"who":{"action":"decline"}}}"#);
        let mut round = ServerRound::open(&params.into(), Some(&state)).unwrap();

        round.accept_unsolicited("who", &form("And who else?"));

        let changed = round.ask("who", form("And who else?"));
        assert_eq!(changed, Ok(InputStatus::Pending));
    }

    #[test]
    fn an_answer_of_the_wrong_shape_is_invalid_params_that_name_its_key() {
        let state = state_after(&[("who", form("Who?"))]);
        let retry = json(r#"{"inputResponses":{"who":12345}}"#);

        let rejection = ServerRound::open(&retry.into(), Some(&state)).unwrap_err();

        let error = rejection.to_rpc_error();
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
        assert!(error.message.contains("`who`"), "{error}");
    }

    #[test]
    fn null_answers_are_absent_and_answers_that_are_not_an_object_are_invalid() {
        assert!(ServerRound::open(&json(r#"{"inputResponses":null}"#).into(), None).is_ok());
        assert!(ServerRound::open(&json(r#"{"inputResponses":[]}"#).into(), None).is_err());
    }

    #[test]
    fn a_malformed_state_is_invalid_params() {
        let rejection = ServerRound::open(&Params::none(), Some(b"garbage")).unwrap_err();

        assert_eq!(rejection.to_rpc_error().code, ErrorCode::INVALID_PARAMS);
        assert_eq!(rejection.to_string(), "failed to decode the request state");
    }

    #[test]
    fn a_state_over_the_limit_names_its_largest_part() {
        let mut round = ServerRound::open(&Params::none(), None).unwrap();
        round.ask("k", form("A?")).unwrap();
        round.remember("draft", Json::encode(&"x".repeat(500)).unwrap());

        let error = round.finish(400).unwrap_err();

        assert_eq!(error.largest, "the value remembered as `draft`");
    }

    #[test]
    fn the_state_of_a_request_is_a_string_or_absent() {
        let state = |text| sealed_request_state(&json(text).into());

        assert_eq!(sealed_request_state(&Params::none()).unwrap(), None);
        assert_eq!(state("{}").unwrap(), None);
        assert_eq!(state(r#"{"requestState":null}"#).unwrap(), None);
        assert_eq!(
            state(r#"{"requestState":"\u0061"}"#).unwrap().as_deref(),
            Some("a")
        );
        assert!(state(r#"{"requestState":7}"#).is_err());
    }
}
