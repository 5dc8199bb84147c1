//! Tools that announce list changes.

use bowline::prelude::*;
use bowline::server::{ChangeBus, LocalChangeBus, ServerChange};

pub(crate) fn register(server: Server) -> Server {
    server
        .tool(test_trigger_tool_change)
        .tool(test_trigger_prompt_change)
}

/// Announces that the list of tools changed.
#[tool]
async fn test_trigger_tool_change(State(bus): State<LocalChangeBus>) -> &'static str {
    bus.publish(ServerChange::Tools);
    "The change was announced."
}

/// Announces that the list of prompts changed.
#[tool]
async fn test_trigger_prompt_change(State(bus): State<LocalChangeBus>) -> &'static str {
    bus.publish(ServerChange::Prompts);
    "The change was announced."
}
