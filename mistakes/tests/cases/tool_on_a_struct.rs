//! `#[tool]` on a struct.
//! Says: `#[tool]` belongs on a function

use bowline::prelude::*;

#[tool]
struct Counter;

fn main() {}
