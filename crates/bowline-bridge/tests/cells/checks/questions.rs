//! Elicitation and sampling: a tool asks in the middle of a call, in the form of each revision.

use serde_json::{Value, json};

use super::{Check, Ends, expect};
use crate::front::FrontClient;
use crate::upstream::{SeenEvent, UpstreamServer};

pub(super) async fn run<F: FrontClient, U: UpstreamServer>(
    check: Check,
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    let (tool, method, declared, other) = match check {
        Check::Sampling => (
            "ask_model",
            "sampling/createMessage",
            "sampling",
            "elicitation",
        ),
        _ => ("ask_user", "elicitation/create", "elicitation", "sampling"),
    };
    let mut call = ends.front.call(tool, json!({"kept": "argument"}));

    let result = ends.front.result(&mut call).await?;

    expect(
        "the text",
        &result["content"][0]["text"],
        &json!("Hello, Ada"),
    )?;
    let [question] = ends.front.asked() else {
        return Err(format!(
            "the client was asked {} times",
            ends.front.asked().len()
        ));
    };
    expect("the method", &question["method"], &json!(method))?;
    expect(
        "the question",
        text_of(&question["params"]),
        &json!("Who are you?"),
    )?;
    if check == Check::Elicitation {
        let property = &question["params"]["requestedSchema"]["properties"]["name"]["type"];
        expect("the schema", property, &json!("string"))?;
    }
    for call in ends.calls(tool) {
        expect(
            "the arguments",
            &call.params["arguments"],
            &json!({"kept": "argument"}),
        )?;
        let found = (
            call.capabilities.get(declared).is_some(),
            call.capabilities.get(other).is_some(),
        );
        expect("the declared capabilities", &found, &(true, false))?;
    }
    check_rounds(tool, ends)
}

/// Checks that the upstream was called and answered in the form of its revision: a legacy one is never called twice.
fn check_rounds<F: FrontClient, U: UpstreamServer>(
    tool: &str,
    ends: &Ends<'_, F, U>,
) -> Result<(), String> {
    let entries = ends.upstream.record().entries();
    let responses = entries.iter();
    let responses = responses.filter(|seen| matches!(seen.event, SeenEvent::Response));
    let found = (ends.calls(tool).len(), responses.count());
    let expected = match ends.upstream_endpoint.revision.is_modern() {
        true => (2, 0),
        false => (1, 1),
    };
    expect("calls and responses", &found, &expected)
}

/// The text of a question, in either form.
fn text_of(params: &Value) -> &Value {
    match params.get("message") {
        Some(message) => message,
        None => &params["messages"][0]["content"]["text"],
    }
}
