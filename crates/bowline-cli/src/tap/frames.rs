//! [`LineSplitter`]: the lines of a byte stream, for the recorder. The stream itself is passed on as it is.

use bytes::{Bytes, BytesMut};

/// Splits chunks into lines. A line that is too long is cut.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    unfinished: BytesMut,
    /// The line exceeds the limit, and its rest is skipped.
    is_cut: bool,
}

impl LineSplitter {
    /// Adds a chunk, and returns the lines that it completes, without their terminators.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<Bytes> {
        let mut lines = Vec::new();
        let mut rest = chunk;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.add(&rest[..end]);
            lines.extend(self.finish());
            rest = &rest[end + 1..];
        }
        self.add(rest);
        lines
    }

    /// Returns the line that is not terminated.
    pub(super) fn finish(&mut self) -> Option<Bytes> {
        self.is_cut = false;
        let line = std::mem::take(&mut self.unfinished);
        (!line.is_empty()).then(|| line.freeze())
    }

    fn add(&mut self, part: &[u8]) {
        if self.is_cut {
            return;
        }
        let space = MAX_LINE - self.unfinished.len();
        // What is cut is not valid JSON, so it is recorded as malformed.
        self.is_cut = part.len() > space;
        self.unfinished
            .extend_from_slice(&part[..part.len().min(space)]);
    }
}

/// The number of bytes of a line that are recorded.
pub(super) const MAX_LINE: usize = if cfg!(test) { 16 } else { 16 * 1024 * 1024 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_depend_on_chunks() {
        let text = b"one\ntwo\r\n\n\nthree";
        for size in 1..text.len() {
            let mut splitter = LineSplitter::default();
            let mut lines: Vec<Bytes> = Vec::new();
            for chunk in text.chunks(size) {
                lines.extend(splitter.push(chunk));
            }
            lines.extend(splitter.finish());
            assert_eq!(lines, ["one", "two\r", "three"]);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_the_next_one_is_complete() {
        let mut splitter = LineSplitter::default();
        let mut lines = splitter.push(&[b'x'; MAX_LINE + 1]);
        lines.extend(splitter.push(b"more\nshort\n"));

        assert_eq!(lines, ["x".repeat(MAX_LINE), "short".to_owned()]);
    }
}
