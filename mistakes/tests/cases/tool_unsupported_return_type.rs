//! An unsupported return type.
//! Says: as `Structured(value)`

use bowline::prelude::*;

struct Weather;

#[tool]
async fn weather(_city: String) -> Weather {
    Weather
}

fn main() {}
