//! [`Substitutions`]: cursors and task ids of the recording, with those that the target gave in their place.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bowline_core::json::Object;
use bowline_types::Json;
use serde_json::Value;

/// Recorded texts, with the texts of the target.
#[derive(Debug, Default)]
pub(super) struct Substitutions(Mutex<BTreeMap<String, String>>);

impl Substitutions {
    /// Learns the cursor and the task id of a result.
    pub(super) fn learn(&self, recorded: &Value, actual: &Value) {
        let pointers = ["/nextCursor", "/taskId", "/task/taskId"];
        for pointer in pointers {
            let text = |value: &Value| Some(value.pointer(pointer)?.as_str()?.to_owned());
            if let (Some(recorded), Some(actual)) = (text(recorded), text(actual)) {
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(recorded, actual);
            }
        }
    }

    /// Returns the params with the texts of the target.
    pub(super) fn apply(&self, params: &Json) -> Json {
        let Ok(mut object) = Object::read(params) else {
            return params.clone();
        };
        let mut has_changed = false;
        for name in ["cursor", "taskId"] {
            let recorded = object
                .member(name)
                .and_then(|it| it.decode::<String>().ok());
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let actual = recorded.and_then(|recorded| known.get(&recorded).cloned());
            drop(known);
            if let Some(actual) = actual {
                object.set(name, Json::from(Value::from(actual)));
                has_changed = true;
            }
        }
        match has_changed {
            true => object.to_json(),
            false => params.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cursor_of_the_target_replaces_the_recorded_one() {
        let substitutions = Substitutions::default();
        substitutions.learn(&json!({"nextCursor": "a"}), &json!({"nextCursor": "b"}));

        let params = |cursor: &str| Json::from(json!({"cursor": cursor, "x": 1}));
        let applied = |cursor| -> Value { substitutions.apply(&params(cursor)).decode().unwrap() };

        assert_eq!(applied("a"), json!({"cursor": "b", "x": 1}));
        assert_eq!(applied("other"), json!({"cursor": "other", "x": 1}));
    }
}
