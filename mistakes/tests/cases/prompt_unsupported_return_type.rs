//! A prompt that returns a number.
//! Says: a prompt returns text

use bowline::prelude::*;

#[prompt]
async fn greet() -> i64 {
    3
}

fn main() {}
