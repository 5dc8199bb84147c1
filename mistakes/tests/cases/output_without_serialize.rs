//! Structured output without `Serialize`.
//! Says: derives `serde::Serialize` and `bowline::schemars::JsonSchema`

use bowline::schemars::{self, JsonSchema};
use bowline::{Structured, Tool};

#[derive(JsonSchema)]
struct Weather {
    celsius: f64,
}

async fn weather() -> Structured<Weather> {
    Structured(Weather { celsius: 21.5 })
}

fn main() {
    let _ = Tool::new("weather", weather);
}
