//! `#[tool]` on a struct.

use bowline::prelude::*;

#[tool]
struct Counter;

fn main() {}
