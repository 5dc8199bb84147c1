//! `#[tools]` on a function.

use bowline::prelude::*;

#[tools]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
