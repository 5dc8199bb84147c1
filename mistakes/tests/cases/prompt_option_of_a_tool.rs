//! An option that only tools have.
//! Says: expected one of: name, title, description, icon

use bowline::prelude::*;

#[prompt(read_only)]
async fn greet() -> &'static str {
    "Hello!"
}

fn main() {}
