//! A duration without a unit.

use bowline::prelude::*;

#[tool(task(after = "5"))]
async fn convert() {}

fn main() {}
