//! A value that is not `Send` across an `.await`.
//! Guide: future cannot be sent between threads safely

use bowline::prelude::*;

use std::rc::Rc;

#[tool]
async fn now() -> String {
    let time = Rc::new("noon");
    std::future::ready(()).await;
    time.to_string()
}

fn main() {}
