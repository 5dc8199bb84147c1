//! Validation of tool uses and tool results in sampling messages.

use std::collections::BTreeSet;

use bowline_types::{Role, SamplingMessage, SamplingMessageContentBlock as Block};

/// Tool uses and tool results that do not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolUseViolation {
    /// A tool use has no result in the next message.
    #[error("tool use `{id}` has no tool result in the next message")]
    NoResult {
        /// The id of the tool use.
        id: String,
    },
    /// A tool result matches no tool use in the previous message.
    #[error("tool result `{id}` matches no tool use in the previous message")]
    NoUse {
        /// The `toolUseId` of the result.
        id: String,
    },
    /// A message with tool results has other content or is not from the user.
    #[error("a message with tool results must be from the user and contain only tool results")]
    Mixed,
}

/// Checks that every tool use is followed by its result, in a user message that contains only tool results.
///
/// # Errors
///
/// If a message breaks a rule; the first violation is returned.
///
/// # Examples
///
/// ```
/// use bowline_core::input::{ToolUseViolation, check_tool_uses};
/// use bowline_types::{Role, SamplingMessage, ToolUseContent};
///
/// let used = ToolUseContent::new("1", "weather", bowline_types::Json::empty_object());
/// let messages = [SamplingMessage::new(Role::Assistant, used)];
///
/// let violation = check_tool_uses(&messages).unwrap_err();
/// assert_eq!(violation, ToolUseViolation::NoResult { id: "1".into() });
/// ```
pub fn check_tool_uses(messages: &[SamplingMessage]) -> Result<(), ToolUseViolation> {
    let mut open = BTreeSet::new();
    for message in messages {
        let results = results_of(message)?;
        if let Some(id) = results.difference(&open).next() {
            return Err(ToolUseViolation::NoUse { id: (*id).into() });
        }
        check_no_open_uses(&open.difference(&results).copied().collect())?;
        open = uses_of(message);
    }
    check_no_open_uses(&open)
}

fn check_no_open_uses(open: &BTreeSet<&str>) -> Result<(), ToolUseViolation> {
    match open.first() {
        None => Ok(()),
        Some(id) => Err(ToolUseViolation::NoResult { id: (*id).into() }),
    }
}

fn results_of(message: &SamplingMessage) -> Result<BTreeSet<&str>, ToolUseViolation> {
    let blocks = message.content.blocks();
    let results: BTreeSet<&str> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::ToolResult(result) => Some(result.tool_use_id.as_str()),
            _ => None,
        })
        .collect();
    let is_pure = message.role == Role::User
        && blocks
            .iter()
            .all(|block| matches!(block, Block::ToolResult(_)));
    if results.is_empty() || is_pure {
        Ok(results)
    } else {
        Err(ToolUseViolation::Mixed)
    }
}

fn uses_of(message: &SamplingMessage) -> BTreeSet<&str> {
    let blocks = message.content.blocks().iter();
    let uses = blocks.filter_map(|block| match block {
        Block::ToolUse(used) => Some(used.id.as_str()),
        _ => None,
    });
    uses.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(messages: Value) -> Result<(), ToolUseViolation> {
        let messages: Vec<SamplingMessage> = serde_json::from_value(messages).unwrap();
        check_tool_uses(&messages)
    }

    fn used(id: &str) -> Value {
        json!({"type": "tool_use", "id": id, "name": "t", "input": {}})
    }

    fn result(id: &str) -> Value {
        json!({"type": "tool_result", "toolUseId": id, "content": []})
    }

    fn text() -> Value {
        json!({"type": "text", "text": "x"})
    }

    #[test]
    fn a_conversation_without_tools_is_fine() {
        let user = json!({"role": "user", "content": [text(), text()]});
        let assistant = json!({"role": "assistant", "content": text()});

        assert_eq!(check(json!([user, assistant])), Ok(()));
        assert_eq!(check(json!([])), Ok(()));
    }

    #[test]
    fn several_uses_are_answered_in_one_message_in_any_order() {
        let uses = json!({"role": "assistant", "content": [text(), used("1"), used("2")]});
        let results = json!({"role": "user", "content": [result("2"), result("1")]});

        assert_eq!(check(json!([uses, results])), Ok(()));
    }

    #[test]
    fn a_use_without_its_result_is_found_wherever_it_is() {
        let uses = json!({"role": "assistant", "content": [used("1"), used("2")]});
        let one = json!({"role": "user", "content": result("1")});
        let other = json!({"role": "user", "content": text()});

        for messages in [json!([uses]), json!([uses, other])] {
            let missing = ToolUseViolation::NoResult { id: "1".into() };
            assert_eq!(check(messages), Err(missing));
        }
        let missing = ToolUseViolation::NoResult { id: "2".into() };
        assert_eq!(check(json!([uses, one, one])), Err(missing));
    }

    #[test]
    fn a_result_without_its_use_is_found() {
        let result = json!({"role": "user", "content": result("1")});

        let missing = ToolUseViolation::NoUse { id: "1".into() };
        assert_eq!(check(json!([result])), Err(missing));
    }

    #[test]
    fn results_must_be_alone_in_a_user_message() {
        let uses = json!({"role": "assistant", "content": used("1")});
        let mixed = json!({"role": "user", "content": [result("1"), text()]});
        let turned = json!({"role": "assistant", "content": result("1")});

        assert_eq!(check(json!([uses, mixed])), Err(ToolUseViolation::Mixed));
        assert_eq!(check(json!([uses, turned])), Err(ToolUseViolation::Mixed));
    }
}
