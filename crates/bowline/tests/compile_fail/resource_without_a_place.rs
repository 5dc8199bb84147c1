//! A resource that is nowhere.

use bowline::prelude::*;

#[resource]
async fn readme() -> String {
    String::new()
}

fn main() {}
