//! A method that would need the service for itself.

use bowline::prelude::*;

struct Counter(i64);

#[tools]
impl Counter {
    #[tool]
    async fn count(&mut self) -> i64 {
        self.0
    }
}

fn main() {}
