//! Requests with one answer: a call of a tool, and a completion.

use serde_json::{Value, json};

use super::{Ends, expect};
use crate::front::FrontClient;
use crate::upstream::UpstreamServer;

/// Arguments, `_meta` and result arrive as they were sent, and the upstream is told of no capability that the client
/// does not have.
pub(super) async fn call<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    ends.expect_offer("/tools")?;
    let arguments = json!({"text": "hello", "other": {"n": [1, 2.5, null, "ß"]}});
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let params = json!({
        "name": "echo",
        "arguments": arguments,
        "_meta": {"traceparent": trace, "example.com/note": {"kept": true}},
    });

    let result = ends.front.request("tools/call", params).await?;

    expect("the text", &result["content"][0]["text"], &json!("hello"))?;
    let revisions = ends.revisions();
    if revisions.iter().all(|one| one.has_structured_content()) {
        let expected = json!({"text": "hello"});
        expect(
            "the structured content",
            &result["structuredContent"],
            &expected,
        )?;
    }
    let seen = ends.only_call("echo")?;
    expect("the arguments", &seen.params["arguments"], &arguments)?;
    let meta = &seen.params["_meta"];
    expect(
        "a foreign key of `_meta`",
        &meta["example.com/note"],
        &json!({"kept": true}),
    )?;
    expect(
        "the trace id",
        &trace_id(&meta["traceparent"]),
        &trace_id(&json!(trace)),
    )?;
    for capability in ["elicitation", "sampling", "roots"] {
        let declared = seen.capabilities.get(capability);
        expect(&format!("the declared {capability}"), &declared, &None)?;
    }
    Ok(())
}

/// The part of `traceparent` that stays on every hop.
fn trace_id(traceparent: &Value) -> Option<String> {
    let mut parts = traceparent.as_str()?.split('-');
    parts.nth(1).map(str::to_owned)
}

pub(super) async fn completion<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    if ends
        .revisions()
        .iter()
        .all(|one| one.declares_completions())
    {
        ends.expect_offer("/completions")?;
    }
    let reference = json!({"type": "ref/prompt", "name": "greet"});
    let argument = json!({"name": "who", "value": "A"});
    let params = json!({"ref": reference, "argument": argument});

    let result = ends.front.request("completion/complete", params).await?;

    let expected = json!({"values": ["Ada", "Alan"], "total": 2, "hasMore": false});
    expect("the completion", &result["completion"], &expected)?;
    let seen = ends.seen("completion/complete");
    let [seen] = seen.as_slice() else {
        return Err(format!("the upstream received {} requests", seen.len()));
    };
    expect("the reference", &seen.params["ref"], &reference)?;
    expect("the argument", &seen.params["argument"], &argument)
}
