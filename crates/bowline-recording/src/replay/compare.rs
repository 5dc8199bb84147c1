//! Compares answers and questions of a server with the recorded ones.

use bowline::ErrorCode;
use bowline::exchange::{Dialect, Outcome, RawInputRequest, fit_question};
use serde_json::{Map, Value, json};

use super::ReplayOutcome;
use super::host::AskedQuestion;
use super::ignore::IgnoreRules;

/// Compares the outcome of a request, and what the server asked before.
pub(super) fn compare(
    rules: &IgnoreRules,
    recorded: &Value,
    actual: &Value,
    asked: &[AskedQuestion],
    unasked: usize,
) -> ReplayOutcome {
    let mut changes = Vec::new();
    let questions = |of: &dyn Fn(&AskedQuestion) -> Option<&RawInputRequest>| {
        let values = asked
            .iter()
            .map(|it| of(it).map_or(Value::Null, question_value));
        json!({"questions": values.collect::<Vec<_>>()})
    };
    let recorded_questions = questions(&|it| it.recorded.as_ref());
    let actual_questions = questions(&|it| Some(&it.actual));
    changes.extend(rules.differences(&recorded_questions, &actual_questions));
    if unasked > 0 {
        let count = |count: usize| json!({"questions": {"count": count}});
        let (all, some) = (count(asked.len() + unasked), count(asked.len()));
        changes.extend(rules.differences(&all, &some));
    }
    changes.extend(rules.differences(recorded, actual));
    changes.truncate(MAX_CHANGES);
    match changes.is_empty() {
        true => ReplayOutcome::Same,
        false => ReplayOutcome::Different { changes },
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
pub(super) fn outcome_value(method: &str, outcome: &Outcome) -> Value {
    match outcome {
        Ok(result) => json!({"result": result.decode::<Value>().unwrap_or_default()}),
        Err(error) => {
            let mut error = error.clone();
            // Versions have different codes for a missing resource, and some servers that of another version.
            if method == "resources/read" && error.code == ErrorCode::RESOURCE_NOT_FOUND {
                error.code = ErrorCode::INVALID_PARAMS;
            }
            json!({"error": serde_json::to_value(&error).unwrap_or_default()})
        }
    }
}

/// Returns a question in the form of the latest version, whatever the version of its server.
fn question_value(question: &RawInputRequest) -> Value {
    let fitted = fit_question(Dialect::LATEST, question.clone());
    let fitted = fitted.as_ref().unwrap_or(question);
    fitted.to_json().decode().unwrap_or_default()
}

/// How many differences of one request are reported.
const MAX_CHANGES: usize = 100;
