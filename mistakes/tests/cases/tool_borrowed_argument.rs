//! A borrowed argument.
//! Says: `String` instead of `&str`

use bowline::prelude::*;

#[tool]
async fn greet(name: &str) -> String {
    format!("Hello, {name}!")
}

fn main() {}
