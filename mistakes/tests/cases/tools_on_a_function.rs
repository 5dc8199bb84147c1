//! `#[tools]` on a function.
//! Says: on a function put `#[tool]`

use bowline::prelude::*;

#[tools]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
