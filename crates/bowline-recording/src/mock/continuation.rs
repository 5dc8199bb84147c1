//! Chooses, after the client has answered a question, among the recorded calls that go on from there.

use bowline_core::Outcome;
use bowline_core::input::InputKind;
use bowline_types::Json;
use serde::Deserialize;
use serde_json::Value;

use crate::conversation::{Ask, Question, Script, same_answer};

/// A step of a recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The index of the script.
    pub(super) script: usize,
    pub(super) step: usize,
}

impl Position {
    /// Returns the position as a `requestState`. It is not a secret, and grants nothing.
    pub(super) fn to_state(self) -> String {
        format!("{STATE_PREFIX}{}-{}", self.script, self.step)
    }

    pub(super) fn from_state(state: &str) -> Option<Self> {
        let (script, step) = state.strip_prefix(STATE_PREFIX)?.split_once('-')?;
        Some(Self {
            script: script.parse().ok()?,
            step: step.parse().ok()?,
        })
    }
}

/// Returns where to go on after these answers to the questions at `asked`: in the same script if its answers are equal,
/// else in another one of the candidates. `None` if no recorded answer fits.
///
/// Candidates are scripts of equal requests. One whose earlier answers differ does not count.
pub(super) fn choose(
    scripts: &[Script],
    candidates: &[usize],
    asked: Position,
    answers: &[Option<Outcome>],
) -> Option<Position> {
    let current = scripts.get(asked.script)?;
    let round = current.asks().position(|(step, _)| step == asked.step)?;
    let own = std::iter::once(&asked.script);
    let others = candidates.iter().filter(|&&it| it != asked.script);
    let places: Vec<(Position, &Ask)> = own
        .chain(others)
        .filter_map(|&script| {
            let other = scripts.get(script)?;
            let (step, ask) = other.asks().nth(round)?;
            let is_possible =
                ask.questions.len() == answers.len() && same_past(current, other, round);
            is_possible.then_some((Position { script, step }, ask))
        })
        .collect();
    let find = |fits: fn(&Question, &Outcome) -> bool| {
        let mut places = places.iter();
        let place = places.find(|(_, ask)| {
            let mut pairs = ask.questions.iter().zip(answers);
            pairs.all(|(question, answer)| answer.as_ref().is_none_or(|it| fits(question, it)))
        });
        place.map(|(position, _)| *position)
    };
    find(is_equal).or_else(|| find(is_alike))
}

/// Returns whether two scripts had the same answers before a round.
fn same_past(one: &Script, other: &Script, round: usize) -> bool {
    let answers = |script: &Script| -> Vec<Option<Outcome>> {
        let asks = script.asks().take(round);
        asks.flat_map(|(_, ask)| ask.questions.iter().map(|it| it.answer.clone()))
            .collect()
    };
    let (one, other) = (answers(one), answers(other));
    one.len() == other.len()
        && one.iter().zip(&other).all(|pair| match pair {
            (Some(one), Some(other)) => same_answer(one, other),
            (one, other) => one.is_none() == other.is_none(),
        })
}

fn is_equal(question: &Question, answer: &Outcome) -> bool {
    question
        .answer
        .as_ref()
        .is_some_and(|recorded| same_answer(recorded, answer))
}

/// Returns whether an answer leads to the same continuation as the recorded one, most likely: the user did the same, if
/// perhaps with other content.
fn is_alike(question: &Question, answer: &Outcome) -> bool {
    match (&question.answer, answer) {
        (None, _) => true,
        (Some(Ok(recorded)), Ok(answer)) => {
            question.request.kind != InputKind::Elicitation || action(recorded) == action(answer)
        }
        (Some(recorded), answer) => recorded.is_err() == answer.is_err(),
    }
}

fn action(answer: &Json) -> Option<String> {
    #[derive(Deserialize)]
    struct Elicited {
        action: String,
    }
    Some(answer.decode::<Elicited>().ok()?.action)
}

/// Returns the recorded answers to a round, for an error.
pub(super) fn recorded_answers(scripts: &[Script], candidates: &[usize], round: usize) -> String {
    let mut texts: Vec<String> = Vec::new();
    for &candidate in candidates.iter().take(MAX_LISTED) {
        let ask = scripts.get(candidate).and_then(|it| it.asks().nth(round));
        let questions = ask.into_iter().flat_map(|(_, ask)| &ask.questions);
        let answers = questions.filter_map(|question| Some(describe(question.answer.as_ref()?)));
        let text = answers.collect::<Vec<_>>().join(" and ");
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join(", ")
}

/// Describes an answer in one line.
pub(super) fn describe(answer: &Outcome) -> String {
    match answer {
        Ok(answer) => match answer.decode::<Value>() {
            Ok(Value::Object(members)) if members.contains_key("action") => {
                match (&members["action"], members.get("content")) {
                    (action, Some(content)) if !content.is_null() => format!("{action} {content}"),
                    (action, _) => action.to_string(),
                }
            }
            _ => answer.as_str().to_owned(),
        },
        Err(error) => format!("the error {}", error.code.0),
    }
}

const STATE_PREFIX: &str = "mock-";
/// How many recorded answers an error lists.
const MAX_LISTED: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_as_a_state() {
        let position = Position {
            script: 12,
            step: 3,
        };

        assert_eq!(Position::from_state(&position.to_state()), Some(position));
        for other in ["", "mock-", "mock-1", "mock-1-x", "1-2", "mock--1-2"] {
            assert_eq!(Position::from_state(other), None, "{other}");
        }
    }
}
