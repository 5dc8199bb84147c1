//! [`diff`]: the differences between two recordings.
//!
//! Exchanges are aligned by method and arguments, in their order. Ids, times and opaque states are not compared.

mod json_diff;
pub use json_diff::{JsonChange, json_diff};

mod path_pattern;
pub use path_pattern::{ParsePathError, PathPattern};

use std::collections::{BTreeMap, VecDeque};

use bowline_types::Json;
use serde_json::{Map, Value, json};

use crate::{Exchange, ExchangeState, Recording, Side, Timeline};

/// What [`diff`] ignores.
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until they are passed to `diff`"]
pub struct DiffOptions {
    ignored: Vec<PathPattern>,
}

/// The differences between two recordings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diff {
    /// The differences, in the order of the exchanges.
    pub changes: Vec<ExchangeChange>,
    /// How many exchanges were compared with one of the other recording.
    pub compared: usize,
}

/// A difference in one exchange.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExchangeChange {
    /// The method.
    pub method: String,
    /// The tool, prompt, resource or task.
    pub name: Option<String>,
    /// The number of the exchange in the first recording.
    pub left: Option<usize>,
    /// The number of the exchange in the second recording.
    pub right: Option<usize>,
    /// What differs; empty if the exchange is in one of the recordings only.
    pub changes: Vec<JsonChange>,
}

impl DiffOptions {
    /// Ignores nothing beyond ids, times and opaque states.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ignores everything at and below these paths, such as `result.content[*].text`.
    pub fn ignore(mut self, pattern: PathPattern) -> Self {
        self.ignored.push(pattern);
        self
    }
}

/// Compares two recordings.
///
/// # Examples
///
/// ```
/// use bowline_recording::{DiffOptions, Recording, diff};
///
/// let recording = |result: &str| {
///     let header = r#"{"format":"bowline-recording","version":1,"started":"2026-07-28T12:00:00Z","transport":"stdio"}"#;
///     let request = r#"{"at":1,"event":"message","from":"client","message":{"jsonrpc":"2.0","id":1,"method":"now"}}"#;
///     let answer = format!(r#"{{"at":2,"event":"message","from":"server","message":{{"jsonrpc":"2.0","id":1,"result":{result}}}}}"#);
///     Recording::parse(format!("{header}\n{request}\n{answer}\n").as_bytes())
/// };
/// let found = diff(&recording(r#"{"hour":1}"#)?, &recording(r#"{"hour":2}"#)?, &DiffOptions::new());
///
/// assert_eq!(found.changes[0].changes[0].path, "result.hour");
///
/// let options = DiffOptions::new().ignore("result.hour".parse().unwrap());
/// assert!(diff(&recording(r#"{"hour":1}"#)?, &recording(r#"{"hour":2}"#)?, &options).changes.is_empty());
/// # Ok::<(), bowline_recording::ReadError>(())
/// ```
#[must_use]
pub fn diff(left: &Recording, right: &Recording, options: &DiffOptions) -> Diff {
    let (left, right) = (Timeline::of(left), Timeline::of(right));
    let pairs = align(&left, &right);
    let mut changes = Vec::new();
    let mut compared = 0;
    for (one, other) in pairs {
        let Some(exchange) = one.or(other) else {
            continue;
        };
        let found = match (one, other) {
            (Some(one), Some(other)) => {
                compared += 1;
                let found = json_diff(&comparable(one), &comparable(other), &options.ignored);
                if found.is_empty() {
                    continue;
                }
                found
            }
            _ => Vec::new(),
        };
        changes.push(ExchangeChange {
            method: exchange.method.clone(),
            name: exchange.name.clone(),
            left: one.map(|it| it.number),
            right: other.map(|it| it.number),
            changes: found,
        });
    }
    Diff { changes, compared }
}

type Pair<'a> = (Option<&'a Exchange>, Option<&'a Exchange>);

/// What aligned exchanges have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum AlignmentKey<'a> {
    /// The method and the arguments.
    Exact(Side, &'a str, String),
    /// The method and the name: the arguments differ.
    Similar(Side, &'a str, Option<&'a str>),
}

/// Pairs exchanges: first those with equal arguments, then those of the same tool, prompt or resource.
fn align<'a>(left: &'a Timeline, right: &'a Timeline) -> Vec<Pair<'a>> {
    let mut partners: BTreeMap<usize, &Exchange> = BTreeMap::new();
    let mut paired: BTreeMap<usize, ()> = BTreeMap::new();
    let keys: [fn(&Exchange) -> AlignmentKey<'_>; 2] = [
        |it| AlignmentKey::Exact(it.from, &it.method, arguments(it).to_string()),
        |it| AlignmentKey::Similar(it.from, &it.method, it.name.as_deref()),
    ];
    for key in keys {
        let mut waiting: BTreeMap<AlignmentKey<'_>, VecDeque<&Exchange>> = BTreeMap::new();
        for exchange in right
            .exchanges()
            .filter(|it| !paired.contains_key(&it.number))
        {
            waiting
                .entry(key(exchange))
                .or_default()
                .push_back(exchange);
        }
        for exchange in left.exchanges() {
            if partners.contains_key(&exchange.number) {
                continue;
            }
            let partner = waiting
                .get_mut(&key(exchange))
                .and_then(VecDeque::pop_front);
            if let Some(partner) = partner {
                paired.insert(partner.number, ());
                partners.insert(exchange.number, partner);
            }
        }
    }
    let pairs = left
        .exchanges()
        .map(|it| (Some(it), partners.get(&it.number).copied()));
    let added = right
        .exchanges()
        .filter(|it| !paired.contains_key(&it.number));
    pairs.chain(added.map(|it| (None, Some(it)))).collect()
}

/// Returns what is compared of an exchange: its arguments, how it ended, and its result or error.
fn comparable(exchange: &Exchange) -> Value {
    let mut compared = Map::new();
    compared.insert("arguments".to_owned(), arguments(exchange));
    let state = match exchange.state {
        ExchangeState::InFlight | ExchangeState::Hung => "not answered".to_owned(),
        ExchangeState::Answered => "answered".to_owned(),
        ExchangeState::ToolError => "tool error".to_owned(),
        ExchangeState::InputRequired => "input required".to_owned(),
        ExchangeState::Failed(_) => "error".to_owned(),
        ExchangeState::Refused(status) => format!("HTTP status {status}"),
        ExchangeState::Cancelled => "cancelled".to_owned(),
    };
    compared.insert("state".to_owned(), state.into());
    match exchange.answer.as_ref().map(|answer| &answer.outcome) {
        Some(Ok(result)) => {
            let mut result = decoded(result);
            if let Some(object) = result.as_object_mut() {
                object.remove("requestState");
            }
            compared.insert("result".to_owned(), result);
        }
        Some(Err(error)) => {
            let mut value = json!({"code": error.code.0, "message": error.message});
            if let (Some(data), Some(object)) = (&error.data, value.as_object_mut()) {
                object.insert("data".to_owned(), decoded(data));
            }
            compared.insert("error".to_owned(), value);
        }
        None => {}
    }
    Value::Object(compared)
}

/// Returns the params without what differs from call to call.
fn arguments(exchange: &Exchange) -> Value {
    let mut params = exchange.params.as_ref().map_or(Value::Null, decoded);
    if let Some(object) = params.as_object_mut() {
        object.remove("_meta");
        object.remove("requestState");
    }
    sorted(params)
}

/// Returns the value with members in the order of their names, which is that of a map or not, depending on a feature of
/// `serde_json` that any crate may enable.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let members: BTreeMap<String, Value> = object.into_iter().collect();
            let members = members
                .into_iter()
                .map(|(name, value)| (name, sorted(value)));
            Value::Object(members.collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(sorted).collect()),
        value => value,
    }
}

/// Decodes JSON; what is nested too deeply is compared as text.
fn decoded(json: &Json) -> Value {
    json.decode().unwrap_or_else(|_| json.as_str().into())
}

#[cfg(test)]
mod tests;
