//! Options of `#[tools]`.

use bowline::prelude::*;

struct Counter;

#[tools(name = "counter")]
impl Counter {
    #[tool]
    async fn count(&self) -> i64 {
        0
    }
}

fn main() {}
