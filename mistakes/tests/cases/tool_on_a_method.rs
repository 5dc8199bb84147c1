//! A method outside of `#[tools]`.
//! Says: methods need `#[tools]` on their `impl` block

use bowline::prelude::*;

struct Counter;

impl Counter {
    #[tool]
    async fn count(&self) -> i64 {
        0
    }
}

fn main() {}
