//! Structured output without `JsonSchema`.
//! Says: derives `serde::Serialize` and `bowline::schemars::JsonSchema`

use bowline::prelude::*;

#[derive(serde::Serialize)]
struct Weather {
    celsius: f64,
}

#[tool]
async fn weather() -> Structured<Weather> {
    Structured(Weather { celsius: 21.5 })
}

fn main() {}
