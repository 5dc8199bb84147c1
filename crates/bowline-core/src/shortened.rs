//! [`shortened`]: text from a peer, truncated for logs and errors.

use std::fmt::{self, Write};

/// A value whose `Display` and `Debug` output is truncated. Returned by [`shortened`].
#[derive(Clone, Copy)]
pub struct Shortened<T>(T);

/// Truncates the text of `value` to 256 bytes.
///
/// Use it for ids, methods and names from a peer, whose length the peer decides, in log lines and errors.
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
        write_truncated(f, format_args!("{}", self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Shortened<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_truncated(f, format_args!("{:?}", self.0))
    }
}

fn write_truncated(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    let mut writer = TruncatingWriter {
        out: f,
        remaining: MAX_LEN,
        is_truncated: false,
    };
    match writer.write_fmt(text) {
        // `TruncatingWriter` returned the error to end the formatting early.
        Err(fmt::Error) if writer.is_truncated => f.write_str("…"),
        written => written,
    }
}

/// Passes text on until `remaining` is used up, then returns an error.
struct TruncatingWriter<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    remaining: usize,
    is_truncated: bool,
}

impl Write for TruncatingWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() <= self.remaining {
            self.remaining -= text.len();
            return self.out.write_str(text);
        }
        let mut end = self.remaining;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.is_truncated = true;
        self.out.write_str(&text[..end])?;
        Err(fmt::Error)
    }
}

const MAX_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_fits_is_not_changed() {
        for text in ["", "tools/call", &"é".repeat(MAX_LEN / 2)] {
            assert_eq!(shortened(text).to_string(), text);
        }
    }

    #[test]
    fn longer_text_is_cut_between_two_characters() {
        for length in MAX_LEN - 3..MAX_LEN + 3 {
            let text = format!("{}{}", "x".repeat(length), "é€😀".repeat(10));

            let cut = shortened(&text).to_string();

            let kept = cut.strip_suffix('…').unwrap();
            assert!(text.starts_with(kept) && kept.len() <= MAX_LEN && kept.len() > MAX_LEN - 4);
        }
    }

    #[test]
    fn an_error_of_the_value_itself_is_returned() {
        struct Failing;

        impl fmt::Display for Failing {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                Err(fmt::Error)
            }
        }

        let mut text = String::new();
        assert_eq!(write!(text, "{}", shortened(Failing)), Err(fmt::Error));
        assert_eq!(text, "");
    }

    #[test]
    fn debug_text_is_cut_as_well() {
        let cut = format!("{:?}", shortened(vec!["quoted"; 1000]));

        assert!(cut.starts_with(r#"["quoted", "quoted""#) && cut.ends_with('…'));
        assert_eq!(cut.len(), MAX_LEN + '…'.len_utf8());
    }
}
