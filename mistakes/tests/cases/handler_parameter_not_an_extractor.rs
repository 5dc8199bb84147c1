//! A plain parameter outside of `Args`.
//! Says: the arguments of a call are one `Args<T>`

use bowline::{Context, Tool};

async fn add(_cx: Context, a: i64) -> i64 {
    a
}

fn main() {
    let _ = Tool::new("add", add);
}
