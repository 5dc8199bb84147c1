//! A function without `#[tool]`.
//! Says: put `#[tool]`

use bowline::prelude::*;

async fn add(Args(numbers): Args<Vec<i64>>) -> i64 {
    numbers.iter().sum()
}

fn main() {
    let _ = Server::new("calculator", "1.0.0").tool(add);
}
