//! A closure without `Ok`.

use bowline::{CallToolResult, Tool};
use serde_json::json;

fn main() {
    let _ = Tool::raw("now", json!({"type": "object"}), |_, _| async {
        CallToolResult::text("noon")
    });
}
