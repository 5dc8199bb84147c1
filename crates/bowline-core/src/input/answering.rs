//! The client's side: all rounds of one request, from the first `input_required` to the last retry.
//!
//! ```text
//! next(result) ──▶ Step::Ask   put each question to the host, `answer` it ──▶ retry_params ──▶ next …
//!             └──▶ Step::Retry nothing to ask, after a pause ───────────────▶ retry_params ──▶ next …
//! ```
//!
//! Each retry is a request of its own, with its own id. It brings the answers of the latest round only.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bowline_types::{Json, ResultType};

use super::{Kind, Question, may_need_input, member};
use crate::json::{Object, Unpicked, Unsplit, pick};

/// The rounds of one request. Nothing of it may be used for another request.
///
/// # Examples
///
/// ```
/// use bowline_core::input::{DEFAULT_ROUND_CAP, Rounds, Step};
/// use bowline_types::Json;
///
/// let params = Json::parse(r#"{"name":"greet"}"#)?;
/// let mut rounds = Rounds::new("tools/call", Some(params), DEFAULT_ROUND_CAP)?;
///
/// let result = r#"{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}"#;
/// let Step::Ask(questions) = rounds.next(&Json::parse(result)?)? else { unreachable!() };
/// for (key, _question) in &questions {
///     rounds.answer(key, Json::parse(r#"{"roots":[]}"#)?)?;
/// }
/// assert_eq!(
///     rounds.retry_params()?.as_str(),
///     r#"{"name":"greet","inputResponses":{"r":{"roots":[]}}}"#
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rounds {
    method: Cow<'static, str>,
    /// An object.
    params: Json,
    cap: u32,
    may_need_input: bool,
    round: u32,
    current: Option<Current>,
}

/// The round that waits for its answers.
#[derive(Debug)]
struct Current {
    /// The keys of the questions in their order.
    keys: Vec<String>,
    /// What was asked under each key.
    asked: BTreeMap<String, AskedQuestion>,
    /// The text of the string, quotes and escapes as they came: it must go back as it is.
    state: Option<Json>,
}

/// A question of the current round and its answer so far.
#[derive(Debug)]
struct AskedQuestion {
    question: Question,
    answer: Option<Json>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an `input_required` asks something or it does not"
)]
pub enum Step {
    /// Put these to the host, in this order, and answer them all.
    Ask(Vec<(String, Question)>),
    /// The server only wants the request again. Pause before, the longer the higher
    /// [`Rounds::round`] is.
    Retry,
}

/// How a server broke the protocol when it asked for input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// It asked while answering a request that may not need input.
    #[error("the server asked for input while answering `{method}`, which may not need any")]
    NotAllowed {
        /// The request's method.
        method: Cow<'static, str>,
    },
    /// It asked too often. That is legal, but the loop has to end somewhere.
    #[error("the server asked for input more than {cap} times in a row")]
    TooManyRounds {
        /// How often it may ask.
        cap: u32,
    },
    /// It asked too much at once.
    #[error("the questions of one round exceed the limit of {max}")]
    TooManyQuestions {
        /// The limit: [`MAX_QUESTIONS_PER_ROUND`].
        max: usize,
    },
    /// The result has neither questions nor a state, so a retry would change nothing.
    #[error("the server asked for input with neither `inputRequests` nor `requestState`")]
    Nothing,
    /// A member has the wrong type.
    #[error("in a result that asks for input, `{member}` must be {expected}")]
    Member {
        /// The member.
        member: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// Two questions have one key.
    #[error("the server asked two questions under the key `{key}`")]
    RepeatedKey {
        /// The key.
        key: String,
    },
    /// A question is of no kind that a host can answer.
    #[error("the server asked `{method}` under the key `{key}`, which no host can answer")]
    UnknownQuestion {
        /// Its key.
        key: String,
        /// Its method.
        method: String,
    },
    /// A question is not of the form `{method, params}`.
    #[error("the question `{key}` is malformed: {why}")]
    MalformedQuestion {
        /// Its key.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// How the one who drives the rounds broke the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The params are not an object.
    #[error("the params of a request must be an object")]
    ParamsNotAnObject,
    /// The server did not ask for input yet.
    #[error("there is no round to answer")]
    NoRound,
    /// The server did not ask this in the current round.
    #[error("nothing was asked under the key `{key}`")]
    NotAsked {
        /// The key.
        key: String,
    },
    /// The answer is none to what was asked.
    #[error("the answer to `{key}` does not fit: {why}")]
    WrongAnswer {
        /// The key of the question.
        key: String,
        /// What an answer looks like.
        why: &'static str,
    },
    /// A retry that leaves questions open would only be asked the same again.
    #[error("not answered yet: {}", .keys.join(", "))]
    Unanswered {
        /// The keys of the open questions.
        keys: Vec<String>,
    },
}

/// Whether a result is no result but asks for input.
#[must_use]
pub fn is_input_required(result: &Json) -> bool {
    pick(result, [member::RESULT_TYPE]).is_ok_and(|[kind]| {
        let kind = kind.as_ref().map(Json::decode);
        matches!(kind, Some(Ok(kind)) if ResultType::INPUT_REQUIRED == kind)
    })
}

impl Rounds {
    /// Prepares for the rounds of a request that is about to be sent, or was.
    ///
    /// `cap` is how many times the server may ask; see [`DEFAULT_ROUND_CAP`].
    ///
    /// # Errors
    ///
    /// If `params` is not an object.
    pub fn new(
        method: impl Into<Cow<'static, str>>,
        params: Option<Json>,
        cap: u32,
    ) -> Result<Self, Misuse> {
        let method = method.into();
        let params = params.unwrap_or_else(Json::empty_object);
        if !params.is_object() {
            return Err(Misuse::ParamsNotAnObject);
        }
        Ok(Self {
            may_need_input: may_need_input(&method),
            method,
            params,
            cap,
            round: 0,
            current: None,
        })
    }

    /// Lets the request need input because an extension says that its method may.
    #[must_use]
    pub fn allow_input(mut self) -> Self {
        self.may_need_input = true;
        self
    }

    /// How many times the server has asked so far.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Takes an `input_required` result and says what to do about it.
    ///
    /// Whatever was left of the round before is forgotten, its state too.
    ///
    /// # Errors
    ///
    /// If the result breaks the protocol, or the server has asked too often. The request has failed then.
    pub fn next(&mut self, result: &Json) -> Result<Step, Violation> {
        self.current = None;
        if !self.may_need_input {
            let method = self.method.clone();
            return Err(Violation::NotAllowed { method });
        }
        if self.round == self.cap {
            return Err(Violation::TooManyRounds { cap: self.cap });
        }
        let current = Current::read(result)?;
        self.round += 1;
        let step = if current.keys.is_empty() {
            Step::Retry
        } else {
            Step::Ask(current.questions())
        };
        self.current = Some(current);
        Ok(step)
    }

    /// Answers a question of the current round. Until the retry, a later answer replaces an earlier one.
    ///
    /// # Errors
    ///
    /// If it was not asked, or the answer cannot be an answer to it.
    pub fn answer(&mut self, key: &str, answer: Json) -> Result<(), Misuse> {
        let current = self.current.as_mut().ok_or(Misuse::NoRound)?;
        let key = key.to_owned();
        let Some(asked) = current.asked.get_mut(&key) else {
            return Err(Misuse::NotAsked { key });
        };
        if let Err(why) = asked.question.kind.check_answer(&answer) {
            return Err(Misuse::WrongAnswer { key, why });
        }
        asked.answer = Some(answer);
        Ok(())
    }

    /// The params of the retry: those of the request, the answers, and the state exactly as it came.
    ///
    /// # Errors
    ///
    /// If a question is still open.
    pub fn retry_params(&self) -> Result<Json, Misuse> {
        let current = self.current.as_ref().ok_or(Misuse::NoRound)?;
        let mut responses = Vec::with_capacity(current.keys.len());
        let mut open = Vec::new();
        for key in &current.keys {
            match current
                .asked
                .get(key)
                .and_then(|asked| asked.answer.as_ref())
            {
                Some(answer) => responses.push((key.as_str(), answer)),
                None => open.push(key.clone()),
            }
        }
        if !open.is_empty() {
            return Err(Misuse::Unanswered { keys: open });
        }
        let mut params = Object::read(&self.params).map_err(|_| Misuse::ParamsNotAnObject)?;
        // A caller who took up a request half-way may have brought those of an earlier round.
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

impl Current {
    fn read(result: &Json) -> Result<Self, Violation> {
        let names = [member::REQUEST_STATE, member::INPUT_REQUESTS];
        let [state, requests] = pick(result, names).map_err(|why| Violation::Member {
            member: "result",
            expected: match why {
                Unpicked::NotAnObject(_) => "an object",
                Unpicked::Twice(_) => "an object without duplicate members",
            },
        })?;
        let state = state.filter(|value| !value.is_null());
        let requests = requests.filter(|value| !value.is_null());
        if state.is_none() && requests.is_none() {
            return Err(Violation::Nothing);
        }
        if state
            .as_ref()
            .is_some_and(|state| state.as_bytes().first() != Some(&b'"'))
        {
            return Err(Violation::Member {
                member: member::REQUEST_STATE,
                expected: "a string",
            });
        }
        let mut current = Self {
            keys: Vec::new(),
            asked: BTreeMap::new(),
            state,
        };
        if let Some(requests) = requests {
            current.read_questions(&requests)?;
        }
        Ok(current)
    }

    fn read_questions(&mut self, requests: &Json) -> Result<(), Violation> {
        let max = MAX_QUESTIONS_PER_ROUND;
        let requests = Object::read_at_most(requests, max).map_err(|why| match why {
            Unsplit::TooManyMembers { max } => Violation::TooManyQuestions { max },
            Unsplit::NotAnObject(_) => Violation::Member {
                member: member::INPUT_REQUESTS,
                expected: "an object",
            },
        })?;
        for (key, request) in requests.iter() {
            let asked = AskedQuestion {
                question: read_question(key, request)?,
                answer: None,
            };
            if self.asked.insert(key.to_owned(), asked).is_some() {
                let key = key.to_owned();
                return Err(Violation::RepeatedKey { key });
            }
            self.keys.push(key.to_owned());
        }
        Ok(())
    }

    fn questions(&self) -> Vec<(String, Question)> {
        let question = |key: &String| {
            let asked = self.asked.get(key)?;
            Some((key.clone(), asked.question.clone()))
        };
        self.keys.iter().filter_map(question).collect()
    }
}

fn read_question(key: &str, request: &Json) -> Result<Question, Violation> {
    let malformed = |why| Violation::MalformedQuestion {
        key: key.to_owned(),
        why,
    };
    let [method, params] = pick(request, ["method", "params"]).map_err(|why| match why {
        Unpicked::NotAnObject(_) => malformed("it must be an object"),
        Unpicked::Twice(_) => malformed("it has duplicate members"),
    })?;
    let Some(Ok(method)) = method.as_ref().map(Json::text) else {
        return Err(malformed("its `method` must be a string"));
    };
    let Some(kind) = Kind::from_method(&method) else {
        return Err(Violation::UnknownQuestion {
            key: key.to_owned(),
            method: method.into_owned(),
        });
    };
    let params = params.filter(|params| !params.is_null());
    match (kind, params) {
        (_, Some(params)) if !params.is_object() => {
            Err(malformed("its `params` must be an object"))
        }
        (Kind::Elicitation | Kind::Sampling, None) => Err(malformed("it must have `params`")),
        (_, params) => Ok(Question::new(kind, params)),
    }
}

/// How many questions one `input_required` may hold, and how many answers the retry: 1,000.
///
/// A server made with this crate reaches [`DEFAULT_STATE_LIMIT`](super::DEFAULT_STATE_LIMIT) before that.
pub const MAX_QUESTIONS_PER_ROUND: usize = 1_000;

/// How many times a server may ask, unless somebody says otherwise.
pub const DEFAULT_ROUND_CAP: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const ROOTS: &str =
        r#"{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}"#;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).unwrap()
    }

    fn rounds() -> Rounds {
        Rounds::new("tools/call", Some(json(r#"{"name":"t"}"#)), 3).unwrap()
    }

    fn violation(result: &str) -> Violation {
        rounds().next(&json(result)).unwrap_err()
    }

    #[test]
    fn the_state_goes_back_byte_for_byte_as_it_was_written() {
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

            assert_eq!(step, Step::Retry);
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
    fn what_the_first_params_brought_of_an_earlier_round_is_replaced() {
        let params = json(r#"{"requestState":"old","name":"t","inputResponses":{"x":1}}"#);
        let mut rounds = Rounds::new("prompts/get", Some(params), 1).unwrap();

        rounds.next(&json(r#"{"requestState":"new"}"#)).unwrap();

        assert_eq!(
            rounds.retry_params().unwrap().as_str(),
            r#"{"name":"t","requestState":"new"}"#
        );
    }

    #[test]
    fn a_server_may_ask_as_often_as_the_cap_says_and_no_more() {
        let mut rounds = rounds();
        for round in 1..=3 {
            rounds.next(&json(r#"{"requestState":"s"}"#)).unwrap();
            assert_eq!(rounds.round(), round);
        }

        let violation = rounds.next(&json(ROOTS)).unwrap_err();

        assert_eq!(violation, Violation::TooManyRounds { cap: 3 });
        assert_eq!(
            violation.to_string(),
            "the server asked for input more than 3 times in a row"
        );
        assert_eq!(rounds.retry_params(), Err(Misuse::NoRound));
    }

    #[test]
    fn input_required_with_neither_questions_nor_state_is_a_violation() {
        for result in [
            r#"{"resultType":"input_required"}"#,
            r#"{"inputRequests":null,"requestState":null}"#,
        ] {
            assert_eq!(violation(result), Violation::Nothing);
        }
    }

    #[test]
    fn input_required_for_a_method_that_may_not_need_any_is_a_violation() {
        let mut listing = Rounds::new("tools/list", None, 3).unwrap();
        let mut extended = Rounds::new("acme/order", None, 3).unwrap().allow_input();

        let refused = listing.next(&json(ROOTS));

        let method = Cow::Borrowed("tools/list");
        assert_eq!(refused, Err(Violation::NotAllowed { method }));
        assert!(extended.next(&json(ROOTS)).is_ok());
    }

    #[test]
    fn a_question_that_no_host_can_answer_is_named() {
        let violation = violation(r#"{"inputRequests":{"k":{"method":"tools/call"}}}"#);

        assert_eq!(
            violation.to_string(),
            "the server asked `tools/call` under the key `k`, which no host can answer"
        );
    }

    #[test]
    fn malformed_questions_are_violations() {
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

    fn asking(count: usize) -> Json {
        let question = |key| format!(r#""{key}":{{"method":"roots/list"}}"#);
        let questions: Vec<_> = (0..count).map(question).collect();
        json(&format!(
            r#"{{"inputRequests":{{{}}}}}"#,
            questions.join(",")
        ))
    }

    #[test]
    fn a_round_of_the_most_questions_is_answered_in_their_order() {
        let mut rounds = rounds();
        let Step::Ask(questions) = rounds.next(&asking(MAX_QUESTIONS_PER_ROUND)).unwrap() else {
            panic!("there are questions");
        };

        for (key, _) in questions.iter().rev() {
            rounds.answer(key, json(r#"{"roots":[]}"#)).unwrap();
        }

        let params = rounds.retry_params().unwrap();
        let responses = Object::read(&params).unwrap();
        let responses = responses.member("inputResponses").unwrap();
        let sent = Object::read(responses).unwrap();
        let keys = questions.iter().map(|(key, _)| key.as_str());
        assert!(sent.iter().map(|(key, _)| key).eq(keys));
    }

    /// 1.4 MB of them blocked a thread for 9 s when each answer was looked for among all questions.
    #[test]
    fn more_questions_than_the_limit_are_a_violation() {
        for count in [MAX_QUESTIONS_PER_ROUND + 1, 40_000] {
            let violation = rounds().next(&asking(count)).unwrap_err();

            let max = MAX_QUESTIONS_PER_ROUND;
            assert_eq!(violation, Violation::TooManyQuestions { max });
        }
    }

    #[test]
    fn a_retry_waits_for_every_answer() {
        let mut rounds = rounds();
        let question = r#"{"method":"roots/list"}"#;
        let result = format!(r#"{{"inputRequests":{{"b":{question},"a":{question}}}}}"#);

        rounds.next(&json(&result)).unwrap();
        rounds.answer("a", json(r#"{"roots":[]}"#)).unwrap();

        let keys = vec!["b".to_owned()];
        assert_eq!(rounds.retry_params(), Err(Misuse::Unanswered { keys }));
    }

    #[test]
    fn an_answer_must_fit_a_question_of_this_round() {
        let mut rounds = rounds();
        let roots = json(r#"{"roots":[]}"#);
        assert_eq!(rounds.answer("r", roots.clone()), Err(Misuse::NoRound));

        rounds.next(&json(ROOTS)).unwrap();

        let key = "x".to_owned();
        assert_eq!(rounds.answer("x", roots), Err(Misuse::NotAsked { key }));
        assert!(matches!(
            rounds.answer("r", json(r#"{"action":"accept"}"#)),
            Err(Misuse::WrongAnswer { .. })
        ));
    }

    #[test]
    fn only_the_result_type_says_that_input_is_required() {
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
