//! A return type that needs `Structured`.
//! Says: as `Structured(value)`

use bowline::Tool;

struct Weather;

async fn weather() -> Weather {
    Weather
}

fn main() {
    let _ = Tool::new("weather", weather);
}
