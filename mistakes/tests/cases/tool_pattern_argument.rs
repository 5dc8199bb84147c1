//! A pattern instead of the name of an argument.
//! Says: expected an identifier

use bowline::prelude::*;

#[tool]
async fn sum((a, b): (i64, i64)) -> i64 {
    a + b
}

fn main() {}
