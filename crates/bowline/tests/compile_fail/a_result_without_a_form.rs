//! A type of one's own that is not wrapped in `Structured`.

use bowline::Tool;

struct Weather;

async fn weather() -> Weather {
    Weather
}

fn main() {
    let _ = Tool::new("weather", weather);
}
