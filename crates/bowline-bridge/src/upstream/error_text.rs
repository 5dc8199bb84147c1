//! The text of an error of an upstream, as clients see it.

use bowline::Error;
use bowline::client::ConnectTimeout;
use bowline::wire::ProgramNotFound;

/// Returns an error with its causes, on one line. It may quote what the server has sent, of which the start is enough.
pub(super) fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    // Clients are not shown the folders of this machine, nor the names of settings of the SDK.
    let is_shown = |error: &&(dyn std::error::Error + 'static)| {
        !error.is::<ProgramNotFound>() && !error.is::<ConnectTimeout>()
    };
    while let Some(error) = cause.filter(is_shown) {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    if let Some((end, _)) = text.char_indices().nth(MAX_ERROR_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

const MAX_ERROR_CHARS: usize = 4096;
