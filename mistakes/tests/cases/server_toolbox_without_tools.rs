//! A type without `#[tools]`.
//! Says: put `#[tools]` on its `impl` block

use bowline::prelude::*;

struct Counter;

fn main() {
    let _ = Server::new("counter", "1.0.0").toolbox(Counter);
}
