//! A text where `true` or `false` is expected.

use bowline::prelude::*;

#[tool(read_only = "yes")]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
