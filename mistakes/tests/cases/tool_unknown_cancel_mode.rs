//! An unknown cancel mode.
//! Says: expected `cancel = "drop"` or `cancel = "signal"`

use bowline::prelude::*;

#[tool(cancel = "abort")]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
