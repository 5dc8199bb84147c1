//! A reference to the context.
//! Says: `Context` instead of `&Context`

use bowline::prelude::*;

#[tool]
async fn id(cx: &Context) -> String {
    cx.request_id().to_string()
}

fn main() {}
