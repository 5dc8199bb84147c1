//! `#[tool]` on an `impl` block.

use bowline::prelude::*;

struct Counter;

#[tool]
impl Counter {
    async fn count(&self) -> i64 {
        0
    }
}

fn main() {}
