//! A reference to the context, without the macro.

use bowline::prelude::*;

async fn id(cx: &Context) -> String {
    cx.request_id().to_string()
}

fn main() {
    let _ = Tool::new("id", id);
}
