//! A misspelt option of a task.
//! Says: did you mean `resumable`?

use bowline::prelude::*;

#[tool(task(resumeable))]
async fn convert() {}

fn main() {}
