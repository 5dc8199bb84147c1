//! A reply that is not awaited.
//! Guide: no method named `text` found for struct `RequestBuilder<

use bowline::prelude::*;

async fn text(client: Client) -> String {
    client.call_tool("now", ()).text()
}

fn main() {}
