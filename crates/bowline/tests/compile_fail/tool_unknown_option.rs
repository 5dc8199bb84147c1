//! An unknown option.

use bowline::prelude::*;

#[tool(readonly)]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
