//! The return value of a synchronous tool, as a plain value.
//! Guide: found `FunctionOutput<

use bowline::prelude::*;

#[tool]
fn shout(text: String) -> String {
    text.to_uppercase()
}

fn main() {
    let text: String = shout("hi".into());
}
