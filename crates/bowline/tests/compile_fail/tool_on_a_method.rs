//! A method outside of `#[tools]`.

use bowline::prelude::*;

struct Counter;

impl Counter {
    #[tool]
    async fn count(&self) -> i64 {
        0
    }
}

fn main() {}
