//! A completer for a variable that the template does not have.
//! Says: it has `{city}`

use bowline::prelude::*;

#[completion(template = "weather://{city}", argument = "town")]
async fn towns(input: bowline::server::CompletionInput) -> Vec<String> {
    vec![input.value]
}

fn main() {}
