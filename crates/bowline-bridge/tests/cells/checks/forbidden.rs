//! Where the specification forbids a check, and by which sentence.

use serde_json::json;

use super::{Check, Ends, expect};
use crate::endpoint::Revision;
use crate::front::FrontClient;
use crate::upstream::UpstreamServer;

pub(super) fn sentence(check: Check, front: Revision, upstream: Revision) -> Option<&'static str> {
    match check {
        Check::Elicitation if !upstream.has_elicitation() => Some(NO_ELICITATION_UPSTREAM),
        Check::Elicitation if !front.has_elicitation() => Some(NO_ELICITATION_FRONT),
        Check::Task if !upstream.has_tasks() => Some(NO_TASKS_UPSTREAM),
        Check::Task if !front.has_tasks() => Some(NO_TASKS_FRONT),
        _ => None,
    }
}

/// A client that cannot be asked: the upstream is not told that it can, and its refusal reaches the client.
pub(super) async fn run<F: FrontClient, U: UpstreamServer>(
    check: Check,
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    let can_ask = ends.upstream_endpoint.revision.has_elicitation();
    if check != Check::Elicitation || !can_ask {
        return Ok(());
    }
    let mut call = ends.front.call("ask_user", json!({}));
    if let Ok(result) = ends.front.result(&mut call).await {
        return Err(format!("expected an error, got {result}"));
    }
    let seen = ends.only_call("ask_user")?;
    let declared = seen.capabilities.get("elicitation");
    expect("the declared elicitation", &declared, &None)
}

const NO_ELICITATION_FRONT: &str = "\
The revision in front has no elicitation: 2025-06-18 was the first to \"add support for elicitation, enabling servers \
to request additional information from users during interactions\" (key changes), and both parties must \"only use \
capabilities that were successfully negotiated\" (lifecycle, operation). The run checks that the upstream is not told \
of it, and that the error of a tool that needs it arrives.";
const NO_ELICITATION_UPSTREAM: &str = "\
The revision behind has no elicitation: 2025-06-18 was the first to \"add support for elicitation, enabling servers to \
request additional information from users during interactions\" (key changes).";
const NO_TASKS_FRONT: &str = "\
The revision in front has no tasks: 2025-11-25 was the first to \"add experimental support for tasks to enable \
tracking durable requests with polling and deferred result retrieval\" (key changes).";
const NO_TASKS_UPSTREAM: &str = "\
The revision behind has no tasks: 2025-11-25 was the first to \"add experimental support for tasks to enable tracking \
durable requests with polling and deferred result retrieval\" (key changes).";
