//! An unsupported return type.

use bowline::prelude::*;

struct Weather;

#[tool]
async fn weather(_city: String) -> Weather {
    Weather
}

fn main() {}
