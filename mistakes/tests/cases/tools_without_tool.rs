//! An `impl` block without a tool.
//! Says: put `#[tool]`, `#[prompt]`, `#[resource]` or `#[completion]` on at least one method

use bowline::prelude::*;

struct Counter;

#[tools]
impl Counter {
    async fn count(&self) -> i64 {
        0
    }
}

fn main() {}
