//! Arguments without `Deserialize`.
//! Says: `T` derives `serde::Deserialize` and `bowline::schemars::JsonSchema`

use bowline::schemars::{self, JsonSchema};
use bowline::{Args, Tool};

#[derive(JsonSchema)]
struct Sum {
    a: i64,
}

async fn add(Args(sum): Args<Sum>) -> i64 {
    sum.a
}

fn main() {
    let _ = Tool::new("add", add);
}
