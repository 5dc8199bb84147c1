//! An `async` closure that captures.
//! Guide: async closure does not implement `Fn` because it captures state from its environment

use std::sync::Arc;

use bowline::{CallToolResult, Tool};
use serde_json::json;

fn main() {
    let name = Arc::new(String::from("Ada"));
    let _ = Tool::raw("name", json!({"type": "object"}), async move |_, _| {
        Ok(CallToolResult::text(name.as_str()))
    });
}
