//! Sanitizes text from peers before it is printed to terminals or logs.

/// Returns `text` without control, bidirectional and invisible characters, truncated to `max` characters.
pub(crate) fn sanitize(text: &str, max: usize) -> String {
    let shown = text.chars().filter(|letter| !is_unprintable(*letter));
    let mut shown: String = shown.take(max + 1).collect();
    if let Some((end, _)) = shown.char_indices().nth(max) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// Returns whether a terminal interprets a character instead of printing it: control characters, line and paragraph
/// separators, bidirectional formatting and zero-width characters.
fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_removed() {
        assert_eq!(sanitize("a\u{1b}[2J\r\nb", 100), "a[2Jb");
        assert_eq!(
            sanitize("x\u{202e}evil\u{2066}\u{200b}\u{2028}y\u{9b}", 100),
            "xevily"
        );
        assert_eq!(sanitize("Grüße, 世界 🎉", 100), "Grüße, 世界 🎉");
        assert_eq!(sanitize("ääää", 3), "äää…");
        assert_eq!(sanitize("ääää", 4), "ääää");
    }
}
