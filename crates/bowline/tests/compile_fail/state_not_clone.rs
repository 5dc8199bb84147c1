//! State that cannot be cloned.

use bowline::prelude::*;

struct Database;

#[tool]
async fn query(State(database): State<Database>) -> &'static str {
    let _ = database;
    "no rows"
}

fn main() {}
