//! A misspelt option of a parameter.
//! Says: did you mean `default`?

use bowline::prelude::*;

#[tool]
async fn list(#[tool(defualt = 10)] limit: usize) -> usize {
    limit
}

fn main() {}
