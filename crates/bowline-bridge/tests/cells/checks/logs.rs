//! Log lines: the level reaches the upstream, and the client sees exactly the lines at or above it.

use serde_json::json;

use super::{Ends, expect};
use crate::front::FrontClient;
use crate::upstream::UpstreamServer;

pub(super) async fn run<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    ends.expect_offer("/logging")?;
    let expected: [&[&str]; 2] = [&["warning", "error"], &["error"]];
    for levels in expected {
        ends.front.set_log_level(levels[0]).await?;
        let mut call = ends.front.call("chatter", json!({}));
        // The upstream logs from the least severe level up, so a line that should be missing comes first.
        for level in levels {
            let line = ends.front.log_line().await?;
            let found = (&line["level"], &line["logger"], &line["data"]["at"]);
            let expected = (&json!(level), &json!("chatter"), &json!(level));
            expect("the line", &found, &expected)?;
        }
        ends.front.result(&mut call).await?;
    }
    match ends.front.inbox().logs.pop_front() {
        Some(line) => Err(format!("an unexpected line: {line}")),
        None => check_level(ends),
    }
}

/// Checks that the upstream was told the level before the first call, in the form of its revision.
fn check_level<F: FrontClient, U: UpstreamServer>(ends: &Ends<'_, F, U>) -> Result<(), String> {
    let calls = ends.calls("chatter");
    let first = calls.first().ok_or("the upstream was not called")?;
    let level = match ends.upstream_endpoint.revision.is_modern() {
        true => first.params["_meta"]["io.modelcontextprotocol/logLevel"].clone(),
        false => {
            let mut set = ends.seen("logging/setLevel");
            set.retain(|request| request.serial < first.serial);
            let last = set.last().ok_or("the upstream was told no level")?;
            last.params["level"].clone()
        }
    };
    expect("the level at the upstream", &level, &json!("warning"))
}
