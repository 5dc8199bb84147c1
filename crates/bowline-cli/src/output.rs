//! [`Output`]: what a command prints, as text for people or JSON for programs.
//!
//! Results go to stdout, everything else to stderr. Texts of servers are not trusted: every one passes [`visible`] or
//! [`visible_line`], so that it cannot send escape codes to the terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use serde::Serialize;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

// The options of a command that prints something.
// No doc comment: it would be the description of every command with these options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputOptions {
    /// Print JSON: one object, or one per line where there are several.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print text without colours and escape codes.
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
}

impl OutputOptions {
    pub(crate) fn output(self) -> Output {
        let format = match self.json {
            true => Format::Json,
            false => Format::Text,
        };
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_plain =
            self.plain || no_color || std::env::var_os("TERM").is_some_and(|it| it == "dumb");
        Output {
            format,
            is_styled: format == Format::Text && !is_plain && io::stdout().is_terminal(),
            is_stderr_styled: !is_plain && io::stderr().is_terminal(),
            width: terminal_width(),
        }
    }
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// Whether stdout is a terminal that gets colours and other escape codes.
    pub(crate) is_styled: bool,
    /// The same for stderr.
    pub(crate) is_stderr_styled: bool,
    /// In columns.
    pub(crate) width: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// A style of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Output {
    /// Text of this width without styles, for tests.
    #[cfg(test)]
    pub(crate) fn plain(width: usize) -> Self {
        Self {
            format: Format::Text,
            is_styled: false,
            is_stderr_styled: false,
            width,
        }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Returns `text` in a style, if stdout has styles. The text must be [visible] already.
    pub(crate) fn style(self, style: Style, text: impl AsRef<str>) -> String {
        styled(self.is_styled, style, text.as_ref())
    }

    /// Returns `text` in a style, if stderr has styles.
    pub(crate) fn style_stderr(self, style: Style, text: impl AsRef<str>) -> String {
        styled(self.is_stderr_styled, style, text.as_ref())
    }

    /// Prints a line to stdout.
    ///
    /// # Errors
    ///
    /// If stdout is closed: the command then ends.
    pub(crate) fn line(self, line: impl AsRef<str>) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", line.as_ref())?;
        stdout.flush()
    }

    /// Prints one JSON value on a line of its own.
    ///
    /// # Errors
    ///
    /// If stdout is closed.
    pub(crate) fn json(self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value).map_err(io::Error::other)?;
        self.line(text)
    }
}

fn styled(is_styled: bool, style: Style, text: &str) -> String {
    let code = match style {
        Style::Bold => 1,
        Style::Dim => 2,
        Style::Red => 31,
        Style::Green => 32,
        Style::Yellow => 33,
        Style::Cyan => 36,
    };
    match is_styled && !text.is_empty() {
        true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        false => text.to_owned(),
    }
}

/// Makes control and escape characters visible, except line breaks and tabs, and characters that reorder text.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    replace_invisible(text, |c| c == '\n' || c == '\t')
}

/// Makes control and escape characters visible, including line breaks and tabs.
pub(crate) fn visible_line(text: &str) -> Cow<'_, str> {
    replace_invisible(text, |_| false)
}

fn replace_invisible(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_replaced = |c: char| (c.is_control() || is_reordering(c)) && !is_kept(c);
    if !text.contains(is_replaced) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !is_replaced(c) => visible.push(c),
            // The pictures of control characters: `␛` for escape.
            '\0'..='\u{1f}' => {
                visible.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'))
            }
            '\u{7f}' => visible.push('\u{2421}'),
            c => visible.push_str(&format!("\\u{{{:x}}}", c as u32)),
        }
    }
    Cow::Owned(visible)
}

/// Returns whether a terminal may show the text around this character in another order, or not at all.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Breaks text into lines of at most `width` columns, at spaces where there are some. Its own line breaks are kept.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    text.lines()
        .flat_map(|line| wrap_line(line, width.max(1)))
        .collect()
}

/// Breaks text into lines like [`wrap`], and indents all but the first.
pub(crate) fn wrap_hanging(text: &str, width: usize) -> Vec<String> {
    let mut lines = wrap(text, width);
    if lines.len() > 1 {
        let first = lines.remove(0);
        let rest = text.get(first.len()..).unwrap_or_default().trim_start();
        let rest = wrap(rest, width.saturating_sub(HANGING.len()).max(1));
        lines = std::iter::once(first)
            .chain(rest.iter().map(|line| format!("{HANGING}{line}")))
            .collect();
    }
    lines
}

const HANGING: &str = "    ";

fn wrap_line(line: &str, width: usize) -> Vec<String> {
    let (mut lines, mut current) = (Vec::new(), String::new());
    let mut columns = 0;
    for word in line.split_inclusive(' ') {
        let visible_width = display_width(word.trim_end_matches(' '));
        if columns > 0 && columns + visible_width > width {
            lines.push(std::mem::take(&mut current).trim_end().to_owned());
            columns = 0;
        }
        for c in word.chars() {
            let char_width = char_width(c);
            // A word that is longer than a line is cut. A space at the end of a line may stick out; it is trimmed.
            if columns + char_width > width && c != ' ' {
                lines.push(std::mem::take(&mut current).trim_end().to_owned());
                columns = 0;
            }
            current.push(c);
            columns += char_width;
        }
    }
    lines.push(current.trim_end().to_owned());
    lines
}

/// Shortens text to `width` columns, with an ellipsis if something is left out.
pub(crate) fn fit(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut fitted = String::new();
    let mut columns = 1; // the ellipsis
    for c in text.chars() {
        columns += char_width(c);
        if columns > width {
            break;
        }
        fitted.push(c);
    }
    fitted.push('…');
    fitted
}

/// Returns the number of columns that a text takes.
pub(crate) fn display_width(text: &str) -> usize {
    text.width()
}

/// Returns the number of columns that a character takes.
fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Returns the width of the terminal; 80 if it is not known.
fn terminal_width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|it| it.parse().ok());
    columns
        .or_else(window_width)
        .filter(|width| *width >= 20)
        .unwrap_or(80)
}

#[cfg(unix)]
fn window_width() -> Option<usize> {
    let of = |stream: &dyn std::os::fd::AsFd| {
        let size = rustix::termios::tcgetwinsize(stream.as_fd()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    of(&io::stdout()).or_else(|| of(&io::stderr()))
}

#[cfg(not(unix))]
fn window_width() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_codes_of_servers_are_made_visible() {
        assert_eq!(visible("\u{1b}[31mred\u{7}\n\tdone"), "␛[31mred␇\n\tdone");
        assert_eq!(visible_line("a\r\nb\u{7f}"), "a␍␊b␡");
        assert_eq!(visible("\u{9b}31m \u{202e}abc"), "\\u{9b}31m \\u{202e}abc");
        assert!(matches!(visible("Ünïcode 漢字"), Cow::Borrowed(_)));
    }

    #[test]
    fn text_is_wrapped_at_spaces_and_cut_where_there_are_none() {
        assert_eq!(wrap("the quick brown fox", 10), ["the quick", "brown fox"]);
        assert_eq!(wrap("abcdefghij klm", 4), ["abcd", "efgh", "ij", "klm"]);
        assert_eq!(wrap("a\n\nb", 80), ["a", "", "b"]);
        assert_eq!(
            wrap_hanging("one two abcdef", 8),
            ["one two", "    abcd", "    ef"]
        );
        assert_eq!(wrap("漢字漢字", 5), ["漢字", "漢字"]);
        for width in 1..30 {
            for line in wrap("Some words, and alongwordthatneedstobecut 漢字.", width) {
                assert!(display_width(&line) <= width.max(2), "{width}: {line}");
            }
        }
    }

    #[test]
    fn text_that_does_not_fit_ends_with_an_ellipsis() {
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abcd", 3), "ab…");
        assert_eq!(fit("漢字漢", 4), "漢…");
    }
}
