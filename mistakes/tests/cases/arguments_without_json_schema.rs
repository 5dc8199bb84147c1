//! Arguments without `JsonSchema`.
//! Says: `T` derives `serde::Deserialize` and `bowline::schemars::JsonSchema`

use bowline::{Args, Tool};

#[derive(serde::Deserialize)]
struct Sum {
    a: i64,
}

async fn add(Args(sum): Args<Sum>) -> i64 {
    sum.a
}

fn main() {
    let _ = Tool::new("add", add);
}
