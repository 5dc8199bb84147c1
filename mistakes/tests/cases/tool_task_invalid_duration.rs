//! A duration without a unit.
//! Says: expected a duration such as `500ms`, `5s`, `2m` or `1h`

use bowline::prelude::*;

#[tool(task(after = "5"))]
async fn convert() {}

fn main() {}
