//! An argument that is not a variable of the template.
//! Says: it has `{city}`

use bowline::prelude::*;

#[resource(uri = "weather://{city}")]
async fn forecast(town: String) -> String {
    town
}

fn main() {}
