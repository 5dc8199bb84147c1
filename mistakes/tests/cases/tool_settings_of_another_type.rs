//! `settings` with a value that is not the settings of an extension.
//! Says: pass the value that the extension documents

use bowline::prelude::*;

#[tool(settings(5))]
async fn paint() {}

fn main() {}
