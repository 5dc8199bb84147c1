//! A closure without `Ok`.
//! Guide: to be a future that resolves to `Result<CallToolResult, ToolError>`

use bowline::{CallToolResult, Tool};
use serde_json::json;

fn main() {
    let _ = Tool::raw("now", json!({"type": "object"}), |_, _| async {
        CallToolResult::text("noon")
    });
}
