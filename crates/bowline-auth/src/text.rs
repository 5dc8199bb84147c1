//! Somebody else's words, made fit for terminals and logs.

/// What is left of text from outside without what terminals obey and what reorders or hides text, and without its
/// end if it is long.
pub(crate) fn readable(text: &str, max: usize) -> String {
    let shown = text.chars().filter(|letter| !is_command(*letter));
    let mut shown: String = shown.take(max + 1).collect();
    if let Some((end, _)) = shown.char_indices().nth(max) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// Whether a character does something instead of being shown: control characters, line and paragraph separators,
/// marks that change the direction of what follows, and characters without a width.
fn is_command(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_left_out() {
        assert_eq!(readable("a\u{1b}[2J\r\nb", 100), "a[2Jb");
        assert_eq!(
            readable("x\u{202e}evil\u{2066}\u{200b}\u{2028}y\u{9b}", 100),
            "xevily"
        );
        assert_eq!(readable("Grüße, 世界 🎉", 100), "Grüße, 世界 🎉");
        assert_eq!(readable("ääää", 3), "äää…");
        assert_eq!(readable("ääää", 4), "ääää");
    }
}
