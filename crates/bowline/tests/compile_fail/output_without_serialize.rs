//! Structured output without `Serialize`.

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
