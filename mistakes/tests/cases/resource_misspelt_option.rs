//! An option with another spelling.
//! Says: did you mean `mime_type`?

use bowline::prelude::*;

#[resource(uri = "docs://readme", mimetype = "text/plain")]
async fn readme() -> &'static str {
    "Read me."
}

fn main() {}
