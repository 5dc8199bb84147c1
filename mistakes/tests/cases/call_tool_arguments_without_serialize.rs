//! Arguments of a call without `Serialize`.
//! Says: consider adding `#[derive(serde::Serialize)]`

use bowline::prelude::*;

struct Sum {
    a: i64,
}

async fn call(client: Client) {
    let _ = client.call_tool("add", Sum { a: 1 }).await;
}

fn main() {}
