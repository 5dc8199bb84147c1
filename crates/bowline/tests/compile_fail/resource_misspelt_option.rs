//! An option with another spelling.

use bowline::prelude::*;

#[resource(uri = "docs://readme", mimetype = "text/plain")]
async fn readme() -> &'static str {
    "Read me."
}

fn main() {}
