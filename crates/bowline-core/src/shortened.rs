//! Text of a peer, cut to a length that a log or an error can carry.

use std::fmt::{self, Write};

/// The beginning of a value's text, for a log or an error. Made by [`shortened`].
#[derive(Clone, Copy)]
pub struct Shortened<T>(T);

/// Cuts the text of `value` to 256 bytes.
///
/// A peer decides how long its ids, methods and names are. A log line or an error that repeats one must not be as long.
///
/// # Examples
///
/// ```
/// use bowline_core::shortened;
///
/// assert_eq!(shortened("tools/list").to_string(), "tools/list");
/// assert_eq!(shortened("x".repeat(1_000_000)).to_string().len(), 256 + "…".len());
/// ```
#[must_use]
pub fn shortened<T>(value: T) -> Shortened<T> {
    Shortened(value)
}

impl<T: fmt::Display> fmt::Display for Shortened<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        cut(f, format_args!("{}", self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Shortened<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        cut(f, format_args!("{:?}", self.0))
    }
}

fn cut(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    let mut beginning = Beginning {
        out: f,
        room: MAX,
        is_cut: false,
    };
    match beginning.write_fmt(text) {
        // It ends the formatting of what would not be written anyway.
        Err(fmt::Error) if beginning.is_cut => f.write_str("…"),
        written => written,
    }
}

/// Passes text on while there is room for it, and then fails.
struct Beginning<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    room: usize,
    is_cut: bool,
}

impl Write for Beginning<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() <= self.room {
            self.room -= text.len();
            return self.out.write_str(text);
        }
        let mut end = self.room;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.is_cut = true;
        self.out.write_str(&text[..end])?;
        Err(fmt::Error)
    }
}

const MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_fits_is_not_changed() {
        for text in ["", "tools/call", &"é".repeat(MAX / 2)] {
            assert_eq!(shortened(text).to_string(), text);
        }
    }

    #[test]
    fn longer_text_is_cut_between_two_characters() {
        for length in MAX - 3..MAX + 3 {
            let text = format!("{}{}", "x".repeat(length), "é€😀".repeat(10));

            let cut = shortened(&text).to_string();

            let kept = cut.strip_suffix('…').unwrap();
            assert!(text.starts_with(kept) && kept.len() <= MAX && kept.len() > MAX - 4);
        }
    }

    #[test]
    fn debug_text_is_cut_as_well() {
        let cut = format!("{:?}", shortened(vec!["quoted"; 1000]));

        assert!(cut.starts_with(r#"["quoted", "quoted""#) && cut.ends_with('…'));
        assert_eq!(cut.len(), MAX + '…'.len_utf8());
    }
}
