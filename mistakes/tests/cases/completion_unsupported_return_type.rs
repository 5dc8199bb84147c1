//! A completer that returns one text.
//! Says: a completer returns a `Vec` of texts

use bowline::prelude::*;

use bowline::server::CompletionInput;

#[completion(prompt = "greet", argument = "language")]
async fn languages(input: CompletionInput) -> String {
    input.value
}

fn main() {}
