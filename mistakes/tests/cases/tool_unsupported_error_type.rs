//! An error type that is not an error.
//! Says: the trait `StdError` is not implemented for `NoSuchBook`

use bowline::prelude::*;

struct NoSuchBook;

#[tool]
async fn find() -> Result<String, NoSuchBook> {
    Err(NoSuchBook)
}

fn main() {}
