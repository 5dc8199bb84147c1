//! An `async fn` where a synchronous one is expected.
//! Says: use `Tool::new` in place of `Tool::blocking`

use bowline::prelude::*;

async fn now() -> &'static str {
    "noon"
}

fn main() {
    let _ = Tool::blocking("now", now);
}
