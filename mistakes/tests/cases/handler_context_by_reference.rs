//! A reference to the context, without the macro.
//! Says: a handler takes `Args<T>`, `State<S>`, `Extension<T>`, `Context`

use bowline::prelude::*;

async fn id(cx: &Context) -> String {
    cx.request_id().to_string()
}

fn main() {
    let _ = Tool::new("id", id);
}
