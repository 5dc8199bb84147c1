//! An option that only tools have.

use bowline::prelude::*;

#[prompt(read_only)]
async fn greet() -> &'static str {
    "Hello!"
}

fn main() {}
