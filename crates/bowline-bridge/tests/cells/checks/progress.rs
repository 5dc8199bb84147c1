//! Progress: each step of two calls arrives before the next one is made, under the token of its call.

use serde_json::json;

use super::{Ends, expect};
use crate::front::FrontClient;
use crate::upstream::UpstreamServer;

pub(super) async fn run<F: FrontClient, U: UpstreamServer>(
    ends: &mut Ends<'_, F, U>,
) -> Result<(), String> {
    let tokens = [json!("token of the front"), json!(7)];
    let mut calls = Vec::new();
    for token in &tokens {
        let params = json!({"name": "count", "arguments": {}, "_meta": {"progressToken": token}});
        calls.push(ends.front.send("tools/call", params));
    }

    for step in 1..=3 {
        for token in &tokens {
            let progress = ends.front.progress(token).await?;
            let found = (progress["progress"].as_f64(), progress["total"].as_f64());
            expect("the progress", &found, &(Some(f64::from(step)), Some(3.0)))?;
        }
        // Both calls wait here.
        tokens.iter().for_each(|_| ends.upstream.open_gate());
    }

    for call in &mut calls {
        let result = ends.front.result(call).await?;
        expect("the text", &result["content"][0]["text"], &json!("counted"))?;
    }
    expect("calls at the upstream", &ends.calls("count").len(), &2)
}
