//! `settings` with a value that is not the settings of an extension.

use bowline::prelude::*;

#[tool(settings(5))]
async fn paint() {}

fn main() {}
