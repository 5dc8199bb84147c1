//! Two `Args`.
//! Says: use one `Args<_>` with the fields of both

use bowline::prelude::*;

#[derive(serde::Deserialize, bowline::schemars::JsonSchema)]
#[schemars(crate = "bowline::schemars")]
struct Number {
    n: i64,
}

#[tool]
async fn add(Args(a): Args<Number>, Args(b): Args<Number>) -> i64 {
    a.n + b.n
}

fn main() {}
