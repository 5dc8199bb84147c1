//! An argument of a resource that is not a template.
//! Says: an argument is a variable such as `{name}` in the URI

use bowline::prelude::*;

#[resource(uri = "weather://today")]
async fn forecast(city: String) -> String {
    city
}

fn main() {}
