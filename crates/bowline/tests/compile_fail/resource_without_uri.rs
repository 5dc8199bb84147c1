//! A resource without a URI.

use bowline::prelude::*;

#[resource]
async fn readme() -> String {
    String::new()
}

fn main() {}
