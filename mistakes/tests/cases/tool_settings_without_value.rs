//! `settings` without the settings of an extension.
//! Says: `settings(Paint { layers: 2 })`

use bowline::prelude::*;

#[tool(settings)]
async fn paint() {}

fn main() {}
