//! A plain parameter outside of `Args`.

use bowline::{Context, Tool};

async fn add(_cx: Context, a: i64) -> i64 {
    a
}

fn main() {
    let _ = Tool::new("add", add);
}
