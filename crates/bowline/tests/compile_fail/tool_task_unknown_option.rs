//! A misspelt option of a task.

use bowline::prelude::*;

#[tool(task(resumeable))]
async fn convert() {}

fn main() {}
