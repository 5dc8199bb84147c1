//! An argument that the template does not have.

use bowline::prelude::*;

#[resource(uri = "weather://{city}")]
async fn forecast(town: String) -> String {
    town
}

fn main() {}
