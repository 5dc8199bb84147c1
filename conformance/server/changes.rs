//! Tools that change what the server offers, or claim to.

use bowline::prelude::*;
use bowline::server::{Bus, Change, LocalBus};

pub(crate) fn offer(server: Server) -> Server {
    server
        .tool(test_trigger_tool_change)
        .tool(test_trigger_prompt_change)
}

/// Announces that the list of tools changed.
#[tool]
async fn test_trigger_tool_change(State(bus): State<LocalBus>) -> &'static str {
    bus.announce(Change::Tools);
    "It was announced."
}

/// Announces that the list of prompts changed.
#[tool]
async fn test_trigger_prompt_change(State(bus): State<LocalBus>) -> &'static str {
    bus.announce(Change::Prompts);
    "It was announced."
}
