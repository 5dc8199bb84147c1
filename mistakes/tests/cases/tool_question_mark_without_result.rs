//! `?` in a tool that returns no `Result`.
//! Says: this function should return `Result`

use bowline::prelude::*;

#[tool]
async fn motd() -> String {
    std::fs::read_to_string("/etc/motd")?
}

fn main() {}
