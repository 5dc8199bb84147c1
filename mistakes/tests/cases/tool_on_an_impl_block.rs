//! `#[tool]` on an `impl` block.
//! Says: put `#[tools]` on the `impl` block

use bowline::prelude::*;

struct Counter;

#[tool]
impl Counter {
    async fn count(&self) -> i64 {
        0
    }
}

fn main() {}
