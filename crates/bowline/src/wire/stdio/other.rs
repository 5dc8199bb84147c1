//! Standard input and output as the runtime has them: not moved, and so open to whoever prints.

use std::io;

use tokio::io::{Stdin, Stdout};

#[allow(
    clippy::unnecessary_wraps,
    reason = "where the descriptors are moved it can fail"
)]
pub(super) fn take() -> io::Result<(Stdin, Stdout)> {
    Ok((tokio::io::stdin(), tokio::io::stdout()))
}
