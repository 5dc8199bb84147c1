//! A prompt that returns a number.

use bowline::prelude::*;

#[prompt]
async fn greet() -> i64 {
    3
}

fn main() {}
