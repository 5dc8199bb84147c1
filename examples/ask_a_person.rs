//! A tool that asks the user in the middle of its work, and a client that passes the question on.
//!
//! `cargo run --example ask_a_person` books a table. The server needs to know for how many, so its client asks at the
//! terminal; answer `2` and `yes`, and it prints `Table 7 at the window is booked for 2.` An empty line declines.
//!
//! The handler of a tool that asks may run once for each question, from its beginning: what must happen once only, such
//! as reserving the table, is inside of `once`.

use std::io::{self, Write};

use bowline::client::Host;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::types::{ElicitAction, ElicitRequestFormParams, ElicitResult};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The question: its fields are the fields of the form that the user fills in.
#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// How many guests are coming?
    guests: u32,
    /// Would you like to sit at the window?
    #[serde(default)]
    window: bool,
}

/// Books a table.
#[tool(requires(elicitation))]
async fn book(cx: Context) -> Result<String, ToolError> {
    let table = cx.once("table", reserve()).await?;
    let booking: Booking = cx
        .elicit("booking", format!("Table {table} is free."))
        .await?;
    let place = if booking.window { " at the window" } else { "" };
    Ok(format!(
        "Table {table}{place} is booked for {}.",
        booking.guests
    ))
}

async fn reserve() -> u32 {
    7
}

/// Asks the user for each field of a form, at the terminal.
fn fill_in(form: &ElicitRequestFormParams) -> io::Result<ElicitResult> {
    println!("{}", form.message);
    let mut content = Map::new();
    for (name, field) in &form.requested_schema.properties.0 {
        print!(
            "{} ",
            serde_json::to_value(field)?["description"]
                .as_str()
                .unwrap_or(name)
        );
        io::stdout().flush()?;
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        let value = match line.trim() {
            "" => return Ok(ElicitResult::new(ElicitAction::Decline)),
            "yes" => json!(true),
            "no" => json!(false),
            text => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        };
        content.insert(name.clone(), value);
    }
    Ok(ElicitResult::accept(Value::Object(content)))
}

#[tokio::main]
async fn main() -> bowline::Result<()> {
    let server = Server::new("restaurant", "1.0.0").tool(book);
    let host = Host::new().elicitation(async |form| {
        let asked = tokio::task::spawn_blocking(move || fill_in(&form)).await;
        match asked {
            Ok(Ok(answer)) => answer,
            _ => ElicitResult::new(ElicitAction::Cancel), // the terminal is gone
        }
    });
    let client = Client::in_process(&server).host(host).await?;
    println!("{}", client.call_tool("book", ()).await?.text());
    client.close().await
}
