//! Cancel: the upstream sees it once, in the form of its wire, and no other call is disturbed.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Ends, expect};
use crate::front::FrontClient;
use crate::upstream::{SeenEvent, UpstreamServer};

pub(super) async fn run<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    let token = json!("another call");
    let other = json!({"name": "count", "arguments": {}, "_meta": {"progressToken": token}});
    let mut other = ends.front.send("tools/call", other);
    ends.front.progress(&token).await?;
    let call = ends.front.call("slow", json!({}));
    let seen = ends.called("slow").await;

    let cancelled = Instant::now();
    ends.front.cancel(&call, REASON).await?;

    let stopped = ends.upstream.record().wait(|entries| {
        entries.iter().find_map(|one| match one.event {
            SeenEvent::Cancelled(serial) | SeenEvent::Closed(serial) if serial == seen.serial => {
                Some(one.at)
            }
            _ => None,
        })
    });
    let stopped = stopped.await;
    ends.cancel_time = Some(stopped.saturating_duration_since(cancelled));
    for _ in 0..3 {
        ends.upstream.open_gate();
    }
    let result = ends.front.result(&mut other).await?;
    expect(
        "the other call",
        &result["content"][0]["text"],
        &json!("counted"),
    )?;
    let next = ends.front.request(
        "tools/call",
        json!({"name": "echo", "arguments": {"text": "on"}}),
    );
    let next = next.await?;
    expect("the next call", &next["content"][0]["text"], &json!("on"))?;
    ends.only_call("slow")?;
    check_form(ends)
}

/// Checks that there was one cancel, in the form of the wire. That a message named the right id is known already: the
/// upstream matches it verbatim.
fn check_form<F: FrontClient, U: UpstreamServer>(ends: &Ends<'_, F, U>) -> Result<(), String> {
    let (mut reasons, mut closed) = (Vec::<Value>::new(), 0);
    for seen in ends.upstream.record().entries() {
        match seen.event {
            SeenEvent::Notification { method, params } if method == "notifications/cancelled" => {
                reasons.push(params["reason"].clone());
            }
            SeenEvent::Closed(_) => closed += 1,
            _ => {}
        }
    }
    let expected = match ends.upstream_endpoint.cancels_by_close() {
        true => (0, 1),
        false => (1, 0),
    };
    expect(
        "messages and closed responses",
        &(reasons.len(), closed),
        &expected,
    )?;
    // Closing a response gives no reason.
    if let (Some(reason), false) = (reasons.first(), ends.front_endpoint.cancels_by_close()) {
        expect("the reason", reason, &json!(REASON))?;
    }
    Ok(())
}

const REASON: &str = "the user changed their mind";
