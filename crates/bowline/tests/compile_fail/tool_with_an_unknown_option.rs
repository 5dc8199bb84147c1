//! An option that does not exist.

use bowline::prelude::*;

#[tool(readonly)]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
