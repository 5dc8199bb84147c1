//! An `impl` block without a tool.

use bowline::prelude::*;

struct Counter;

#[tools]
impl Counter {
    async fn count(&self) -> i64 {
        0
    }
}

fn main() {}
