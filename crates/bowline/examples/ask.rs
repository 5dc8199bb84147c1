//! A tool that asks the user in the middle of its work, in both eras with the same ten lines.
//!
//! `cargo run --example ask`

#![allow(clippy::print_stdout, reason = "this example talks to a person")]

use bowline::client::Host;
use bowline::prelude::*;
use bowline::types::ElicitResult;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// What the user is asked: the fields of the type are the fields of the form.
#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// How many are coming.
    guests: u32,
    /// With a view.
    #[serde(default)]
    window: bool,
}

/// Books a table.
#[tool(requires(elicitation))]
async fn book(cx: Context) -> Result<String, ToolError> {
    let table = cx.once("table", async { 7 }).await?;
    let booking: Booking = cx
        .elicit("booking", format!("Table {table} is free. For whom?"))
        .await?;
    let place = if booking.window {
        "at the window"
    } else {
        "inside"
    };
    Ok(format!("Table {table} {place} for {}", booking.guests))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> bowline::Result<()> {
    let server = Server::new("restaurant", "1.0.0").tool(book);
    for version in ["2026-07-28", "2025-11-25"] {
        let host = Host::new().elicitation(async |form| {
            println!("  the user is asked: {}", form.message);
            ElicitResult::accept(json!({"guests": 2, "window": true}))
        });
        let client = Client::in_process(&server)
            .protocol_version(version)
            .host(host)
            .await?;

        let reply = client.call_tool("book", ()).await?;

        println!("{version}: {}", reply.text());
        assert_eq!(reply.text(), "Table 7 at the window for 2");
    }
    Ok(())
}
