//! A resource without a URI.
//! Says: `#[resource(uri = "docs://readme")]`

use bowline::prelude::*;

#[resource]
async fn readme() -> String {
    String::new()
}

fn main() {}
