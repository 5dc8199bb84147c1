//! The server's side: one round, in which a handler asks and finds what was answered before.
//!
//! A handler is run from its beginning in every round. What it has asked before it finds answered; what it
//! asks for the first time ends the round. For that to come to an end, a handler must ask the same
//! questions under the same keys each time it is run with the same answers.

use std::collections::BTreeMap;

use bowline_types::{ErrorCode, Json, ResultType, RpcError};
use serde_json::Value;

use super::state::{Answered, Awaited, State, StateTooLarge, StateUnreadable};
use super::{Digest, MAX_QUESTIONS_PER_ROUND, Question, member};
use crate::json::{Object, Params, Unpicked, Unsplit};

/// One run of a handler that may ask.
///
/// # Examples
///
/// ```
/// use bowline_core::input::{Asked, DEFAULT_STATE_LIMIT, Kind, Question, Round};
/// use bowline_core::json::Params;
/// use bowline_types::Json;
///
/// let question = Question::new(Kind::Roots, None);
/// let mut round = Round::open(&Params::none(), None)?;
/// assert_eq!(round.ask("where", question.clone())?, Asked::Pending);
/// let required = round.finish(DEFAULT_STATE_LIMIT)?.expect("a question is open");
///
/// let retry = Json::parse(r#"{"inputResponses":{"where":{"roots":[]}}}"#)?;
/// let mut round = Round::open(&retry.into(), Some(&required.state))?;
/// let answer = Json::parse(r#"{"roots":[]}"#)?;
/// assert_eq!(round.ask("where", question)?, Asked::Answered(answer));
/// assert!(round.finish(DEFAULT_STATE_LIMIT)?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Round {
    /// Every answer that the request brought, asked for or not.
    brought: BTreeMap<String, Json>,
    answered: BTreeMap<String, Answered>,
    remembered: BTreeMap<String, Json>,
    /// Every question of this round, answered or not.
    asked: BTreeMap<String, Digest>,
    /// Those of them that the client must be asked.
    pending: BTreeMap<String, Question>,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a question is answered or it is not"
)]
pub enum Asked {
    /// The client has answered this very question.
    Answered(Json),
    /// The client will be asked when the round ends.
    Pending,
}

/// How a round ends in which something was asked and not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputRequired {
    /// What the client is asked, by key.
    pub questions: BTreeMap<String, Question>,
    /// What the next round must know, in plain text. Seal it before it leaves.
    pub state: Vec<u8>,
}

/// One key stands for two questions in one round, so its answer would be ambiguous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key `{key}` is used for two different questions")]
#[non_exhaustive]
pub struct KeyReused {
    /// The key.
    pub key: String,
}

/// Why a retry is not taken up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// A member has the wrong type.
    #[error("`{member}` must be {expected}")]
    Member {
        /// The member.
        member: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// An answer cannot be an answer to what was asked.
    #[error("the answer to `{key}` does not fit: {why}")]
    Answer {
        /// The key of the question.
        key: String,
        /// What an answer looks like.
        why: &'static str,
    },
    /// The request brings more answers than a round has questions.
    #[error("the answers of one round exceed the limit of {max}")]
    TooManyAnswers {
        /// The limit: [`MAX_QUESTIONS_PER_ROUND`].
        max: usize,
    },
    /// The state cannot be read.
    #[error(transparent)]
    State(#[from] StateUnreadable),
}

/// The sealed state that a request brings back, if it brings one.
///
/// # Errors
///
/// If there is one that is not a string.
pub fn request_state(params: &Params) -> Result<Option<String>, Rejection> {
    let wrong = || Rejection::Member {
        member: member::REQUEST_STATE,
        expected: "a string",
    };
    match params.member(member::REQUEST_STATE).map_err(unpicked)? {
        None => Ok(None),
        Some(state) => state.decode().map_err(|_| wrong()),
    }
}

impl Round {
    /// Takes up a request: the first time without a state, later with the state of the round before,
    /// opened.
    ///
    /// An answer in `params` counts only if its question was asked in the round before; others are
    /// ignored, unless [`Round::take_unasked`] takes them. So without a state none counts.
    ///
    /// # Errors
    ///
    /// If the state cannot be read, an answer that counts is not an answer, or there are more than
    /// [`MAX_QUESTIONS_PER_ROUND`] answers.
    pub fn open(params: &Params, state: Option<&[u8]>) -> Result<Self, Rejection> {
        let State {
            asked,
            mut answered,
            remembered,
            ..
        } = state.map(State::decode).transpose()?.unwrap_or_default();
        let responses = input_responses(params)?.unwrap_or_else(Json::empty_object);
        let mut brought = BTreeMap::new();
        for (key, answer) in read_responses(&responses)?.iter() {
            brought
                .entry(key.to_owned())
                .or_insert_with(|| answer.clone());
            let Some(Awaited(kind, digest)) = asked.get(key) else {
                continue;
            };
            kind.check_answer(answer).map_err(|why| Rejection::Answer {
                key: key.to_owned(),
                why,
            })?;
            answered.insert(key.to_owned(), Answered(*digest, answer.clone()));
        }
        Ok(Self {
            brought,
            answered,
            remembered,
            ..Self::default()
        })
    }

    /// Takes an answer to this question that the request brought although it was not asked. One that
    /// cannot be its answer is ignored.
    ///
    /// Whoever answers like that has not seen the question, so this is not for consent.
    pub fn take_unasked(&mut self, key: &str, question: &Question) {
        if self.answered.contains_key(key) {
            return;
        }
        if let Some(answer) = self.brought.get(key)
            && question.kind.check_answer(answer).is_ok()
        {
            let answered = Answered(question.digest(), answer.clone());
            self.answered.insert(key.to_owned(), answered);
        }
    }

    /// Asks: finds the answer to this very question, or puts it to the client when the round ends.
    ///
    /// Asking again under the same key gives the same answer, so a loop that asks until it likes the
    /// answer must change the key each time. A question that was changed since it was answered is a
    /// new one.
    ///
    /// # Errors
    ///
    /// If the key was used for another question in this round.
    pub fn ask(&mut self, key: &str, question: Question) -> Result<Asked, KeyReused> {
        let digest = question.digest();
        let first = *self.asked.entry(key.to_owned()).or_insert(digest);
        if first != digest {
            let key = key.to_owned();
            return Err(KeyReused { key });
        }
        match self.answered.get(key) {
            Some(Answered(answers, answer)) if *answers == digest => {
                Ok(Asked::Answered(answer.clone()))
            }
            _ => {
                self.pending.insert(key.to_owned(), question);
                Ok(Asked::Pending)
            }
        }
    }

    /// Takes back a question that nobody waits for any more: the client is not asked.
    pub fn withdraw(&mut self, key: &str) {
        self.pending.remove(key);
    }

    /// What an earlier round, or this one, remembered under `key`.
    #[must_use]
    pub fn recall(&self, key: &str) -> Option<&Json> {
        self.remembered.get(key)
    }

    /// Keeps `value` for the rounds to come. Keys of values and of questions do not meet.
    pub fn remember(&mut self, key: &str, value: Json) {
        self.remembered.insert(key.to_owned(), value);
    }

    /// Whether something was asked that the client must answer first.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ends the round: what to ask of the client, or `None` if all that was asked is answered.
    ///
    /// # Errors
    ///
    /// If the state would be longer than `limit` bytes.
    pub fn finish(self, limit: usize) -> Result<Option<InputRequired>, StateTooLarge> {
        if !self.is_pending() {
            return Ok(None);
        }
        let mut state = State::new(self.answered, self.remembered);
        for (key, question) in &self.pending {
            // An answer to what this key meant before is of no more use.
            state.answered.remove(key);
            let awaited = Awaited(question.kind, self.asked[key]);
            state.asked.insert(key.clone(), awaited);
        }
        Ok(Some(InputRequired {
            questions: self.pending,
            state: state.encode(limit)?,
        }))
    }
}

impl InputRequired {
    /// The result that tells the client, given the state as it was sealed.
    #[must_use]
    pub fn to_result(&self, sealed_state: &str) -> Json {
        let questions = self.questions.iter();
        let questions: BTreeMap<_, _> = questions
            .map(|(key, question)| (key.as_str(), question.to_json()))
            .collect();
        let questions = Json::object(questions.iter().map(|(key, json)| (*key, json)));
        let mut result = Object::default();
        let result_type = ResultType::INPUT_REQUIRED.to_string();
        result.set(member::RESULT_TYPE, Value::from(result_type).into());
        result.set(member::INPUT_REQUESTS, questions);
        result.set(member::REQUEST_STATE, Value::from(sealed_state).into());
        result.to_json()
    }
}

impl Rejection {
    /// What the client is told.
    #[must_use]
    pub fn to_rpc_error(&self) -> RpcError {
        RpcError::new(ErrorCode::INVALID_PARAMS, self.to_string())
    }
}

/// The answers a request brings; `null` is none.
fn input_responses(params: &Params) -> Result<Option<Json>, Rejection> {
    let responses = params.member(member::INPUT_RESPONSES).map_err(unpicked)?;
    Ok(responses.filter(|it| !it.is_null()))
}

fn read_responses(responses: &Json) -> Result<Object<'_>, Rejection> {
    Object::read_at_most(responses, MAX_QUESTIONS_PER_ROUND).map_err(|why| match why {
        Unsplit::TooManyMembers { max } => Rejection::TooManyAnswers { max },
        Unsplit::NotAnObject(_) => Rejection::Member {
            member: member::INPUT_RESPONSES,
            expected: "an object",
        },
    })
}

#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn unpicked(why: Unpicked) -> Rejection {
    Rejection::Member {
        member: "params",
        expected: match why {
            Unpicked::NotAnObject(_) => "an object",
            Unpicked::Twice(_) => "an object whose members stand once",
        },
    }
}

/// How long a state may be unless somebody says otherwise: 64 KiB.
pub const DEFAULT_STATE_LIMIT: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use bowline_types::{InputRequest, InputRequiredResult};

    use super::super::Kind;
    use super::*;

    fn json(text: &'static str) -> Json {
        Json::parse(text).unwrap()
    }

    fn form(message: &str) -> Question {
        let params = serde_json::json!({"message": message, "requestedSchema": {}});
        Question::new(Kind::Elicitation, Some(params.into()))
    }

    /// The state after a first round that asks these.
    fn state_after(questions: &[(&str, Question)]) -> Vec<u8> {
        let mut round = Round::open(&Params::none(), None).unwrap();
        for (key, question) in questions {
            assert_eq!(round.ask(key, question.clone()), Ok(Asked::Pending));
        }
        round.finish(1000).unwrap().unwrap().state
    }

    #[test]
    fn a_round_without_questions_requires_no_input() {
        let mut round = Round::open(&json(r#"{"name":"t"}"#).into(), None).unwrap();
        round.remember("x", Json::null());

        assert!(!round.is_pending());
        assert_eq!(round.finish(0).unwrap(), None);
    }

    #[test]
    fn all_questions_of_a_round_are_asked_together_in_the_order_of_their_keys() {
        let mut round = Round::open(&Params::none(), None).unwrap();
        round.ask("b", Question::new(Kind::Roots, None)).unwrap();
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
    fn a_question_that_was_taken_back_is_not_asked() {
        let mut round = Round::open(&Params::none(), None).unwrap();
        round.ask("a", form("Who?")).unwrap();
        round.ask("b", form("Why?")).unwrap();

        round.withdraw("a");
        round.withdraw("never asked");

        let required = round.finish(1000).unwrap().unwrap();
        assert_eq!(required.questions.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_the_client_is_told_has_the_form_of_the_specification() {
        let mut round = Round::open(&Params::none(), None).unwrap();
        round.ask("b", Question::new(Kind::Roots, None)).unwrap();

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
    fn an_answer_that_nobody_asked_for_is_ignored() {
        let state = state_after(&[("who", form("Who?"))]);
        let retry = json(r#"{"inputResponses":{"other":{"action":"accept"},"odd":7}}"#);

        let mut round = Round::open(&retry.into(), Some(&state)).unwrap();

        assert_eq!(round.ask("other", form("Who?")), Ok(Asked::Pending));
        assert_eq!(round.ask("who", form("Who?")), Ok(Asked::Pending));
    }

    #[test]
    fn more_answers_than_a_round_has_questions_are_refused() {
        let answers: Vec<_> = (0..=MAX_QUESTIONS_PER_ROUND)
            .map(|key| format!(r#""{key}":{{"roots":[]}}"#))
            .collect();
        let retry = format!(r#"{{"inputResponses":{{{}}}}}"#, answers.join(","));

        let refused = Round::open(&Json::parse(retry).unwrap().into(), None).unwrap_err();

        assert_eq!(
            refused.to_rpc_error().message,
            "the answers of one round exceed the limit of 1000"
        );
    }

    #[test]
    fn without_a_state_no_answer_counts() {
        let retry = json(r#"{"inputResponses":{"who":{"action":"accept"}}}"#);

        let mut round = Round::open(&retry.into(), None).unwrap();

        assert_eq!(round.ask("who", form("Who?")), Ok(Asked::Pending));
    }

    #[test]
    fn a_question_whose_text_changed_is_asked_again_and_its_old_answer_is_gone() {
        let state = state_after(&[("sure", form("Delete 1 file?"))]);
        let retry = json(r#"{"inputResponses":{"sure":{"action":"accept"}}}"#);
        let mut round = Round::open(&retry.into(), Some(&state)).unwrap();

        let asked = round.ask("sure", form("Delete 900 files?"));

        assert_eq!(asked, Ok(Asked::Pending));
        let state = round.finish(1000).unwrap().unwrap().state;
        let mut round = Round::open(&Params::none(), Some(&state)).unwrap();
        assert_eq!(
            round.ask("sure", form("Delete 1 file?")),
            Ok(Asked::Pending)
        );
    }

    #[test]
    fn the_first_answer_stands_when_a_later_round_answers_again() {
        let state = state_after(&[("a", form("A?"))]);
        let first = json(r#"{"inputResponses":{"a":{"action":"decline"}}}"#);
        let mut round = Round::open(&first.into(), Some(&state)).unwrap();
        round.ask("a", form("A?")).unwrap();
        round.ask("b", form("B?")).unwrap();
        let state = round.finish(1000).unwrap().unwrap().state;

        let again = json(r#"{"inputResponses":{"a":{"action":"accept"}}}"#);
        let mut round = Round::open(&again.into(), Some(&state)).unwrap();

        let declined = json(r#"{"action":"decline"}"#);
        assert_eq!(round.ask("a", form("A?")), Ok(Asked::Answered(declined)));
    }

    #[test]
    fn one_key_for_two_questions_is_misuse_and_for_the_same_question_is_not() {
        let mut round = Round::open(&Params::none(), None).unwrap();
        round.ask("k", form("A?")).unwrap();

        assert_eq!(round.ask("k", form("A?")), Ok(Asked::Pending));
        assert_eq!(round.ask("k", form("B?")).unwrap_err().key, "k");
    }

    #[test]
    fn an_answer_that_nobody_asked_for_counts_where_the_handler_takes_it() {
        let params = json(r#"{"inputResponses":{"who":{"action":"decline"},"other":7}}"#);
        let mut round = Round::open(&params.into(), None).unwrap();

        round.take_unasked("who", &form("Who?"));

        let answer = Asked::Answered(json(r#"{"action":"decline"}"#));
        assert_eq!(round.ask("who", form("Who?")), Ok(answer));
        assert!(!round.is_pending());
    }

    #[test]
    fn an_unasked_answer_of_the_wrong_shape_is_asked_for_again() {
        for text in [
            r#"{"inputResponses":{"who":12345}}"#,
            r#"{"inputResponses":{"whom":{"action":"decline"}}}"#,
            r#"{"inputResponses":null}"#,
        ] {
            let mut round = Round::open(&json(text).into(), None).unwrap();

            round.take_unasked("who", &form("Who?"));

            assert_eq!(round.ask("who", form("Who?")), Ok(Asked::Pending), "{text}");
        }
    }

    #[test]
    fn an_answer_that_was_asked_for_is_not_replaced_by_an_unasked_one() {
        let state = state_after(&[("who", form("Who?"))]);
        let params = json(r#"{"inputResponses":{"who":{"action":"decline"}}}"#);
        let mut round = Round::open(&params.into(), Some(&state)).unwrap();

        round.take_unasked("who", &form("And who else?"));

        let changed = round.ask("who", form("And who else?"));
        assert_eq!(changed, Ok(Asked::Pending));
    }

    #[test]
    fn an_answer_of_the_wrong_shape_is_invalid_params_that_name_its_key() {
        let state = state_after(&[("who", form("Who?"))]);
        let retry = json(r#"{"inputResponses":{"who":12345}}"#);

        let rejection = Round::open(&retry.into(), Some(&state)).unwrap_err();

        let error = rejection.to_rpc_error();
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
        assert!(error.message.contains("`who`"), "{error}");
    }

    #[test]
    fn answers_that_are_null_are_none_and_answers_that_are_no_object_are_invalid() {
        assert!(Round::open(&json(r#"{"inputResponses":null}"#).into(), None).is_ok());
        assert!(Round::open(&json(r#"{"inputResponses":[]}"#).into(), None).is_err());
    }

    #[test]
    fn a_garbled_state_is_invalid_params() {
        let rejection = Round::open(&Params::none(), Some(b"garbage")).unwrap_err();

        assert_eq!(rejection.to_rpc_error().code, ErrorCode::INVALID_PARAMS);
        assert_eq!(rejection.to_string(), "the request state is garbled");
    }

    #[test]
    fn a_state_over_the_limit_says_what_is_large() {
        let mut round = Round::open(&Params::none(), None).unwrap();
        round.ask("k", form("A?")).unwrap();
        round.remember("draft", Json::encode(&"x".repeat(500)).unwrap());

        let error = round.finish(400).unwrap_err();

        assert_eq!(error.largest, "the value remembered as `draft`");
    }

    #[test]
    fn the_state_of_a_request_is_a_string_or_absent() {
        let state = |text| request_state(&json(text).into());

        assert_eq!(request_state(&Params::none()).unwrap(), None);
        assert_eq!(state("{}").unwrap(), None);
        assert_eq!(state(r#"{"requestState":null}"#).unwrap(), None);
        assert_eq!(
            state(r#"{"requestState":"\u0061"}"#).unwrap().as_deref(),
            Some("a")
        );
        assert!(state(r#"{"requestState":7}"#).is_err());
    }
}
