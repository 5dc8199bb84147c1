//! A reply that is not awaited.

use bowline::prelude::*;

async fn text(client: Client) -> String {
    client.call_tool("now", ()).text()
}

fn main() {}
