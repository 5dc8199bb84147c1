//! State that cannot be cloned.
//! Says: consider annotating `Database` with `#[derive(Clone)]`

use bowline::prelude::*;

struct Database;

#[tool]
async fn query(State(database): State<Database>) -> &'static str {
    let _ = database;
    "no rows"
}

fn main() {}
