//! An argument without a name.

use bowline::prelude::*;

#[tool]
async fn sum((a, b): (i64, i64)) -> i64 {
    a + b
}

fn main() {}
