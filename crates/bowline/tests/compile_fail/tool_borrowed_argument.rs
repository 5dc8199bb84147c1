//! A borrowed argument.

use bowline::prelude::*;

#[tool]
async fn greet(name: &str) -> String {
    format!("Hello, {name}!")
}

fn main() {}
