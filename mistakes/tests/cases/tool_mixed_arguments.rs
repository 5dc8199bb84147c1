//! Plain arguments together with `Args`.
//! Says: use either plain parameters or one `Args<_>`

use bowline::prelude::*;

#[derive(bowline::serde::Deserialize, bowline::schemars::JsonSchema)]
#[serde(crate = "bowline::serde")]
#[schemars(crate = "bowline::schemars")]
struct More {
    b: i64,
}

#[tool]
async fn add(a: i64, Args(more): Args<More>) -> i64 {
    a + more.b
}

fn main() {}
