//! A way of being cancelled that does not exist.

use bowline::prelude::*;

#[tool(cancel = "abort")]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
