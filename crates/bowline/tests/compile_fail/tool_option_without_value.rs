//! An option without its value.

use bowline::prelude::*;

#[tool(name)]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
