//! Options of `#[tools]`.
//! Says: write those of a tool in its `#[tool(…)]`

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
