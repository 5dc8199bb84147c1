//! A misspelt option of a parameter.

use bowline::prelude::*;

#[tool]
async fn list(#[tool(defualt = 10)] limit: usize) -> usize {
    limit
}

fn main() {}
