//! A synchronous function where an `async fn` is expected.
//! Says: for a synchronous function use `Tool::blocking`

use bowline::Tool;

fn three() -> i64 {
    3
}

fn main() {
    let _ = Tool::new("three", three);
}
