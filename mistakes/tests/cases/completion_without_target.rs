//! A completer of nothing.
//! Says: `#[completion(prompt = "greet", argument = "language")]`

use bowline::prelude::*;

#[completion(argument = "language")]
async fn languages(input: bowline::server::CompletionInput) -> Vec<String> {
    vec![input.value]
}

fn main() {}
