//! A tool with a type parameter.
//! Says: write the type that it takes

use bowline::prelude::*;

#[tool]
async fn echo<T>(value: T) -> String {
    String::new()
}

fn main() {}
