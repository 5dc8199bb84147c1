//! An argument whose type derives nothing.
//! Says: derives `serde::Deserialize` and `bowline::schemars::JsonSchema`

use bowline::prelude::*;

struct Place;

#[tool]
async fn weather(place: Place) -> &'static str {
    let _ = place;
    "sunny"
}

fn main() {}
