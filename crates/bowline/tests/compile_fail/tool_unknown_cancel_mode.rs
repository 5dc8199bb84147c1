//! An unknown cancel mode.

use bowline::prelude::*;

#[tool(cancel = "abort")]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
