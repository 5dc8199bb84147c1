//! An argument that is borrowed.

use bowline::prelude::*;

#[tool]
async fn greet(name: &str) -> String {
    format!("Hello, {name}!")
}

fn main() {}
