//! A text where `true` or `false` is expected.
//! Says: expected `read_only` or `read_only = false`

use bowline::prelude::*;

#[tool(read_only = "yes")]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
