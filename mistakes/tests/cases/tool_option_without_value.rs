//! An option without its value.
//! Says: expected a text: `name = "…"`

use bowline::prelude::*;

#[tool(name)]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
