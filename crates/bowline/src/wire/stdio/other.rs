//! Standard input and output of tokio, for systems other than Unix: the descriptors are not moved.

use std::io;

use tokio::io::{Stdin, Stdout};

#[allow(clippy::unnecessary_wraps, reason = "the Unix version can fail")]
pub(super) fn take_stdio() -> io::Result<(Stdin, Stdout)> {
    Ok((tokio::io::stdin(), tokio::io::stdout()))
}
