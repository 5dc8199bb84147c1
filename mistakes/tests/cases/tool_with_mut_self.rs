//! A method that takes `&mut self`.
//! Says: change fields through a `Mutex` or an atomic

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
