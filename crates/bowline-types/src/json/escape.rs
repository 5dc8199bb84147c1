//! Encodes strings as JSON, optimized for long text with few escapes: scans 32 bytes at a time and copies whole runs.

/// Appends `text` as a quoted JSON string.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    out.push(b'"');
    loop {
        let (plain, special) = rest.split_at(plain_len(rest));
        out.extend_from_slice(plain);
        let Some((special, behind)) = special.split_first() else {
            break;
        };
        push_escape(out, *special);
        rest = behind;
    }
    out.push(b'"');
}

/// Returns the number of bytes before the first that has to be escaped.
fn plain_len(text: &[u8]) -> usize {
    let (chunks, _) = text.as_chunks::<32>();
    // `fold` without an early exit, so that the compiler vectorizes the scan of a chunk.
    let is_plain = |chunk: &&[u8; 32]| {
        !chunk
            .iter()
            .fold(false, |found, byte| found | is_special(*byte))
    };
    let plain = chunks.iter().take_while(is_plain).count() * 32;
    let rest = text[plain..].iter().position(|byte| is_special(*byte));
    rest.map_or(text.len(), |at| plain + at)
}

fn is_special(byte: u8) -> bool {
    (byte < b' ') | (byte == b'"') | (byte == b'\\')
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let mut out = Vec::new();
        push_string(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_character_is_written_as_serde_writes_it() {
        for character in ('\0'..='\u{ff}').chain(['\u{2028}', '\u{fffd}', '😀']) {
            for text in [
                character.to_string(),
                format!("a{character}b{character}{character}"),
            ] {
                assert_eq!(written(&text), serde_json::to_string(&text).unwrap());
            }
        }
    }

    #[test]
    fn escapes_are_found_at_any_offset() {
        for length in 0..100 {
            for special in ["", "\"", "\n", "\u{1}", "é"] {
                for at in [0, length / 2, length] {
                    let mut text = "x".repeat(length);
                    text.insert_str(at, special);

                    assert_eq!(written(&text), serde_json::to_string(&text).unwrap());
                }
            }
        }
    }
}
