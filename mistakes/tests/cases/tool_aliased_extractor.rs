//! An extractor behind an alias, without a pattern.
//! Says: put `#[tool(extractor)]` on the parameter

use bowline::prelude::*;

type Name = State<&'static str>;

#[tool]
async fn name(name: Name) -> &'static str {
    name.0
}

fn main() {}
