//! [`Draft`]: a [`Script`] while the events of its request are read, over all legs of a multi round-trip request.

use std::borrow::Cow;
use std::time::Duration;

use bowline_core::era::{Dialect, Unsealed, unseal};
use bowline_core::input::{ClientRounds, InputStep, RawInputRequest};
use bowline_core::json::pick;
use bowline_core::{Notification, Outcome};
use bowline_types::{Json, RpcError};
use serde_json::Value;

use super::{Ask, Ending, Question, RequestKey, Script, Step, bare_params};

/// A script that is not complete yet.
pub(super) struct Draft {
    script: Script,
    /// The time of the last step.
    last: Duration,
    /// Whether the server waits for the client's answers.
    has_open_round: bool,
}

/// The position of a question in a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuestionAt {
    step: usize,
    question: usize,
}

/// What the answer of the server means for a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Finally,
    /// The client sends the request again, with answers.
    WithQuestions,
}

impl Draft {
    pub(super) fn new(
        method: Cow<'static, str>,
        params: &Json,
        dialect: &'static Dialect,
        at: Duration,
    ) -> Self {
        let params = bare_params(params);
        let script = Script {
            key: RequestKey::new(&method, &params),
            method,
            params: params.to_unshared(),
            dialect,
            steps: Vec::new(),
            ending: Ending::Silence,
            started: at,
            ended: None,
        };
        Self {
            script,
            last: at,
            has_open_round: false,
        }
    }

    pub(super) fn into_script(self) -> Script {
        self.script
    }

    pub(super) fn notify(&mut self, at: Duration, notification: Notification) {
        let after = self.elapsed(at);
        self.script.steps.push(Step::Notify {
            after,
            notification,
        });
    }

    /// Adds a question of a legacy server. Questions that were open at the same time belong to one round.
    pub(super) fn ask(&mut self, at: Duration, request: RawInputRequest) -> QuestionAt {
        if !self.has_open_round {
            let after = self.elapsed(at);
            let questions = Vec::new();
            self.script.steps.push(Step::Ask(Ask { after, questions }));
            self.has_open_round = true;
        }
        let round = self.script.asks().count();
        let steps = self.script.steps.iter_mut().enumerate().rev();
        let mut asks = steps.filter_map(|(at, step)| match step {
            Step::Ask(ask) => Some((at, ask)),
            Step::Notify { .. } => None,
        });
        let (step, ask) = asks.next().expect("an open round has a step");
        let question = ask.questions.len();
        ask.questions.push(Question {
            key: question_key(round, question),
            request,
            answer: None,
        });
        QuestionAt { step, question }
    }

    /// Sets the answer to a question of a legacy server.
    pub(super) fn answer_question(&mut self, at: Duration, place: QuestionAt, outcome: Outcome) {
        let Some(Step::Ask(ask)) = self.script.steps.get_mut(place.step) else {
            return;
        };
        if let Some(question) = ask.questions.get_mut(place.question) {
            question.answer = Some(outcome);
        }
        // The next question starts another round.
        self.has_open_round = ask.questions.iter().any(|it| it.answer.is_none());
        self.last = at;
    }

    /// Adds the answer of the server.
    pub(super) fn answer(&mut self, at: Duration, outcome: Outcome) -> Answered {
        let after = self.elapsed(at);
        let unsealed = unseal(&self.script.method, self.script.dialect, outcome);
        let outcome = match unsealed {
            Ok(Unsealed::InputRequired(result)) => match self.read_round(after, &result) {
                Ok(()) => return Answered::WithQuestions,
                Err(why) => Err(invalid_answer(&why)),
            },
            Ok(Unsealed::Complete(result) | Unsealed::Extension { result, .. }) => {
                Ok(result.to_unshared())
            }
            Ok(Unsealed::Failed(error)) => Err(error),
            Err(violation) => Err(invalid_answer(&violation)),
        };
        self.end(at, Ending::Answer { after, outcome });
        Answered::Finally
    }

    /// Ends the draft with an error that was not a JSON-RPC message.
    pub(super) fn fail(&mut self, at: Duration, error: RpcError) {
        let after = self.elapsed(at);
        let outcome = Err(error);
        self.end(at, Ending::Answer { after, outcome });
    }

    pub(super) fn cancel(&mut self, at: Duration) {
        self.end(at, Ending::Cancelled);
    }

    /// Adds the answers with which the client sent the request again.
    pub(super) fn resume(&mut self, at: Duration, responses: Option<&Json>) {
        let round = self
            .script
            .steps
            .iter_mut()
            .rev()
            .find_map(|step| match step {
                Step::Ask(ask) => Some(ask),
                Step::Notify { .. } => None,
            });
        for question in round.into_iter().flat_map(|round| &mut round.questions) {
            let answer = responses.and_then(|all| pick(all, [question.key.as_str()]).ok());
            let answer = answer.and_then(|[answer]| answer);
            question.answer = answer.map(|answer| Ok(answer.to_unshared()));
        }
        self.last = at;
    }

    fn read_round(&mut self, after: Duration, result: &Json) -> Result<(), String> {
        let rounds = ClientRounds::new(self.script.method.clone(), None, 1);
        let mut rounds = rounds.map_err(|error| error.to_string())?.allow_input();
        let questions = match rounds.next(result).map_err(|error| error.to_string())? {
            InputStep::Ask(questions) => questions,
            InputStep::Retry => Vec::new(),
        };
        let questions = questions.into_iter().map(|(key, request)| Question {
            key,
            request: RawInputRequest::new(request.kind, request.params.map(|it| it.to_unshared())),
            answer: None,
        });
        let questions = questions.collect();
        self.script.steps.push(Step::Ask(Ask { after, questions }));
        Ok(())
    }

    fn end(&mut self, at: Duration, ending: Ending) {
        self.script.ending = ending;
        self.script.ended = Some(at);
    }

    fn elapsed(&mut self, at: Duration) -> Duration {
        let elapsed = at.saturating_sub(self.last);
        self.last = at;
        elapsed
    }
}

/// Returns the key under which a modern client is asked what a legacy server asked with a request.
fn question_key(round: usize, question: usize) -> String {
    match question {
        0 => format!("question-{round}"),
        _ => format!("question-{round}-{}", question + 1),
    }
}

fn invalid_answer(why: &dyn std::fmt::Display) -> RpcError {
    RpcError::internal(format!("the recorded answer is invalid: {why}"))
}

/// Returns whether two answers to a question are the same, apart from their `_meta`.
pub(crate) fn same_answer(one: &Outcome, other: &Outcome) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => content(one) == content(other),
        (Err(one), Err(other)) => one.code == other.code,
        _ => false,
    }
}

fn content(answer: &Json) -> Value {
    let mut answer: Value = answer.decode().unwrap_or_default();
    if let Value::Object(members) = &mut answer {
        members.remove("_meta");
        members.retain(|_, value| !value.is_null());
    }
    answer
}
