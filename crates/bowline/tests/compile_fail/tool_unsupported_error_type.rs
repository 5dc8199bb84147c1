//! An error type that is not an error.

use bowline::prelude::*;

struct NoSuchBook;

#[tool]
async fn find() -> Result<String, NoSuchBook> {
    Err(NoSuchBook)
}

fn main() {}
