//! A completer of nothing.

use bowline::prelude::*;

#[completion(argument = "language")]
async fn languages(input: bowline::server::CompletionInput) -> Vec<String> {
    vec![input.value]
}

fn main() {}
