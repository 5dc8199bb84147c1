//! A call of the function in place of the function.
//! Says: without calling it: `server.tool(add)`

use bowline::prelude::*;

#[tool]
async fn now() -> &'static str {
    "noon"
}

fn main() {
    let _ = Server::new("clock", "1.0.0").tool(now());
}
