//! A client that sends one question to several servers and keeps the first answer. Dropping the other calls cancels
//! them: their handlers stop at once.
//!
//! `cargo run --example fan_out` prints
//!
//! ```text
//! oslo: cancelled
//! turin: cancelled
//! first answer: 21 degrees, says lima
//! ```
//!
//! The servers are part of this program, to keep it short. Clients of `Client::connect` and `Client::spawn` are used in
//! the same way, and their servers learn of the drop over the network.

use std::future::IntoFuture;
use std::time::Duration;

use bowline::prelude::*;
use futures_util::future::select_ok;

/// Sends the call to all servers, and returns the first answer. It fails if all of them do.
async fn first_answer(clients: &[Client], tool: &str) -> bowline::Result<String> {
    let calls = clients
        .iter()
        .map(|client| Box::pin(client.call_tool(tool, ()).into_future()));
    let (reply, _others) = select_ok(calls).await?;
    Ok(reply.text()) // the other calls are dropped here
}

/// A server that takes this long to answer.
fn station(city: &'static str, delay: Duration) -> Server {
    let weather = Tool::new("weather", move || async move {
        let unfinished = PrintOnDrop(city);
        tokio::time::sleep(delay).await;
        std::mem::forget(unfinished);
        format!("21 degrees, says {city}")
    });
    Server::new(city, "1.0.0").tool(weather)
}

struct PrintOnDrop(&'static str);

impl Drop for PrintOnDrop {
    fn drop(&mut self) {
        println!("{}: cancelled", self.0);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> bowline::Result<()> {
    let (moment, hour) = (Duration::from_millis(10), Duration::from_secs(3600));
    let mut clients = Vec::new();
    for (city, delay) in [("oslo", hour), ("lima", moment), ("turin", hour)] {
        clients.push(Client::in_process(&station(city, delay)).await?);
    }
    println!("first answer: {}", first_answer(&clients, "weather").await?);
    Ok(())
}
