//! `settings` without the settings of an extension.

use bowline::prelude::*;

#[tool(settings)]
async fn paint() {}

fn main() {}
