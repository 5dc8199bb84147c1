//! Prints the result of a tool.

use bowline::types::{CallToolResult, ContentBlock};
use serde_json::Value;

use crate::content::ContentPrinter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Style;

/// Prints a result, and returns the exit code for it.
///
/// # Errors
///
/// If stdout is closed, or a file cannot be written.
pub(super) fn print(result: &CallToolResult, printer: &ContentPrinter) -> Result<Exit, Failure> {
    let output = printer.output;
    if output.is_json() {
        output.json(result)?;
    } else {
        let structured = result.structured_content.as_ref();
        for block in &result.content {
            let is_repeated = structured.is_some_and(|it| is_repeated(block, it.as_str()));
            if !is_repeated {
                printer.print(block)?;
            }
        }
        if let Some(structured) = structured {
            printer.json(structured.as_str())?;
        }
    }
    if result.is_error == Some(true) {
        eprintln!(
            "{}",
            output.style_stderr(Style::Red, "bowline: the tool reported an error")
        );
        return Ok(Exit::Tool);
    }
    Ok(Exit::Success)
}

/// Returns whether a text says the same as the structured output: servers send both, for older clients.
fn is_repeated(block: &ContentBlock, structured: &str) -> bool {
    let Some(text) = block.as_text() else {
        return false;
    };
    let Ok(structured) = serde_json::from_str::<Value>(structured) else {
        return false;
    };
    let inner = match &structured {
        Value::Object(members) if members.len() == 1 => members.get("result"),
        _ => None,
    };
    let is_same = |value: &Value| {
        value.as_str() == Some(text)
            || serde_json::from_str::<Value>(text).is_ok_and(|it| it == *value)
    };
    is_same(&structured) || inner.is_some_and(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_repeats_the_structured_output_is_recognized() {
        let is = |text: &str, structured: &str| is_repeated(&ContentBlock::text(text), structured);

        assert!(is("3", r#"{"result": 3}"#));
        assert!(is(r#"{"b":1,"a":2}"#, r#"{"a": 2, "b": 1}"#));
        assert!(is("hi", r#"{"result": "hi"}"#));
        assert!(!is("the sum is 3", r#"{"result": 3}"#));
        assert!(!is("3", r#"{"result": 3, "unit": "m"}"#));
    }
}
