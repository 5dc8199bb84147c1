//! An `async fn` where a synchronous one is expected.

use bowline::prelude::*;

async fn now() -> &'static str {
    "noon"
}

fn main() {
    let _ = Tool::blocking("now", now);
}
