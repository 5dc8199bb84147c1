//! Compares answers and questions of a server with the recorded ones.

use bowline::exchange::{Dialect, Outcome, RawInputRequest, fit_question};
use serde_json::{Map, Value, json};

use super::host::AskedQuestion;
use super::ignore::IgnoreRules;
use super::ReplayOutcome;
use crate::JsonDifference;
use crate::json_difference::json_differences;

/// Compares the outcome of a request, and what the server asked before.
pub(super) fn compare(
    rules: &IgnoreRules,
    recorded: &Value,
    actual: &Value,
    asked: &[AskedQuestion],
    unasked: usize,
) -> ReplayOutcome {
    let mut differences = Vec::new();
    for (at, question) in asked.iter().enumerate() {
        let actual = question_value(&question.actual);
        let path = format!("/questions/{at}");
        match &question.recorded {
            Some(recorded) => {
                let found = differing(rules, &question_value(recorded), &actual);
                differences.extend(found.into_iter().map(|mut difference| {
                    difference.path = format!("{path}{}", difference.path);
                    difference
                }));
            }
            None => differences.push(JsonDifference {
                path,
                expected: None,
                actual: Some(actual),
            }),
        }
    }
    if unasked > 0 {
        differences.push(JsonDifference {
            path: "/questions".to_owned(),
            expected: Some(json!(asked.len() + unasked)),
            actual: Some(json!(asked.len())),
        });
    }
    differences.extend(differing(rules, recorded, actual));
    differences.truncate(MAX_DIFFERENCES);
    match differences.is_empty() {
        true => ReplayOutcome::Same,
        false => ReplayOutcome::Different { differences },
    }
}

/// Compares what two servers say about themselves: capabilities and instructions.
pub(super) fn compare_introductions(
    rules: &IgnoreRules,
    recorded: &Value,
    actual: &Value,
) -> ReplayOutcome {
    let compared = |introduction: &Value| {
        let mut members = Map::new();
        for name in ["capabilities", "instructions"] {
            if let Some(value) = introduction.get(name) {
                members.insert(name.to_owned(), value.clone());
            }
        }
        json!({"result": members})
    };
    compare(rules, &compared(recorded), &compared(actual), &[], 0)
}

/// Returns an outcome as `{"result": …}` or `{"error": …}`.
pub(super) fn outcome_value(outcome: &Outcome) -> Value {
    match outcome {
        Ok(result) => json!({"result": result.decode::<Value>().unwrap_or_default()}),
        Err(error) => json!({"error": serde_json::to_value(error).unwrap_or_default()}),
    }
}

fn differing(rules: &IgnoreRules, recorded: &Value, actual: &Value) -> Vec<JsonDifference> {
    json_differences(recorded, actual, MAX_DIFFERENCES, &|path, recorded, actual| {
        rules.ignores(path, recorded, actual)
    })
}

/// Returns a question in the form of the latest version, whatever the version of its server.
fn question_value(question: &RawInputRequest) -> Value {
    let fitted = fit_question(Dialect::LATEST, question.clone());
    let fitted = fitted.as_ref().unwrap_or(question);
    fitted.to_json().decode().unwrap_or_default()
}

const MAX_DIFFERENCES: usize = 100;
