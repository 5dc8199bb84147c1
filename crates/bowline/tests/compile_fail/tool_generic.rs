//! A tool with a type parameter.

use bowline::prelude::*;

#[tool]
async fn echo<T>(value: T) -> String {
    String::new()
}

fn main() {}
