//! An unknown attribute on a parameter.
//! Says: expected a doc comment, `#[tool(…)]`

use bowline::prelude::*;

#[tool]
async fn double(#[arg] a: i64) -> i64 {
    2 * a
}

fn main() {}
