//! An unknown option.
//! Says: did you mean `read_only`?

use bowline::prelude::*;

#[tool(readonly)]
async fn now() -> &'static str {
    "noon"
}

fn main() {}
