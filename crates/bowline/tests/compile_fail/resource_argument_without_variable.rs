//! An argument of a resource that is not a template.

use bowline::prelude::*;

#[resource(uri = "weather://today")]
async fn forecast(city: String) -> String {
    city
}

fn main() {}
