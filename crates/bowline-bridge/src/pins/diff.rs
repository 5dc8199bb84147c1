//! Unified diffs of short texts.

use std::fmt::Write as _;
use std::ops::Range;

/// Returns the difference of two texts in the unified format, with three lines of context.
pub(super) fn unified_diff(title: &str, old: &[String], new: &[String]) -> String {
    let mut diff = format!("--- {title} (pinned)\n+++ {title} (offered)\n");
    let lines = edit_script(old, new);
    for hunk in hunks(&lines) {
        let before = &lines[..hunk.start];
        let count =
            |lines: &[(Edit, &str)], not: Edit| lines.iter().filter(|it| it.0 != not).count();
        let (old_start, new_start) = (count(before, Edit::Add), count(before, Edit::Remove));
        let lines = &lines[hunk];
        let (old_count, new_count) = (count(lines, Edit::Add), count(lines, Edit::Remove));
        let start = |start: usize, count: usize| if count == 0 { start } else { start + 1 };
        let _ = writeln!(
            diff,
            "@@ -{},{old_count} +{},{new_count} @@",
            start(old_start, old_count),
            start(new_start, new_count),
        );
        for (edit, line) in lines {
            let _ = writeln!(diff, "{}{line}", edit.sign());
        }
    }
    diff
}

/// Escapes characters that a terminal does not show, or obeys, such as those that hide instructions from people.
pub(super) fn visible(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for letter in line.chars() {
        let escaped = letter.escape_debug();
        match letter {
            // Quotes and backslashes would be escaped too.
            '\'' | '"' | '\\' => text.push(letter),
            _ if is_format_control(letter) => text.extend(letter.escape_unicode()),
            _ => text.extend(escaped),
        }
    }
    text
}

/// Returns whether a character is printable for Rust, but changes the direction of a text, or has no width.
fn is_format_control(letter: char) -> bool {
    matches!(
        letter,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    Keep,
    Remove,
    Add,
}

impl Edit {
    fn sign(self) -> char {
        match self {
            Self::Keep => ' ',
            Self::Remove => '-',
            Self::Add => '+',
        }
    }
}

/// Returns the lines of both texts with what becomes of them.
fn edit_script<'a>(old: &'a [String], new: &'a [String]) -> Vec<(Edit, &'a str)> {
    let same = |pairs: &mut dyn Iterator<Item = (&String, &String)>| {
        pairs.take_while(|(a, b)| a == b).count()
    };
    let start = same(&mut old.iter().zip(new));
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end = same(&mut old_rest.iter().rev().zip(new_rest.iter().rev()));
    let old_middle = &old_rest[..old_rest.len() - end];
    let new_middle = &new_rest[..new_rest.len() - end];
    let lines = |edit: Edit, lines: &'a [String]| lines.iter().map(move |it| (edit, it.as_str()));
    let mut script: Vec<_> = lines(Edit::Keep, &old[..start]).collect();
    // The table below has a cell for each pair of lines. Texts so large are not read line by line.
    if old_middle.len().saturating_mul(new_middle.len()) > MAX_CELLS {
        script.extend(lines(Edit::Remove, old_middle));
        script.extend(lines(Edit::Add, new_middle));
    } else {
        push_middle(&mut script, old_middle, new_middle);
    }
    script.extend(lines(Edit::Keep, &old_rest[old_rest.len() - end..]));
    script
}

/// Appends the shortest edits, by the longest common subsequence.
fn push_middle<'a>(script: &mut Vec<(Edit, &'a str)>, old: &'a [String], new: &'a [String]) {
    let width = new.len() + 1;
    let mut longest = vec![0_u32; (old.len() + 1) * width];
    for a in (0..old.len()).rev() {
        for b in (0..new.len()).rev() {
            longest[a * width + b] = match old[a] == new[b] {
                true => longest[(a + 1) * width + b + 1] + 1,
                false => longest[(a + 1) * width + b].max(longest[a * width + b + 1]),
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    while a < old.len() || b < new.len() {
        if a < old.len() && b < new.len() && old[a] == new[b] {
            script.push((Edit::Keep, &old[a]));
            (a, b) = (a + 1, b + 1);
        } else if a < old.len()
            && (b == new.len() || longest[(a + 1) * width + b] >= longest[a * width + b + 1])
        {
            script.push((Edit::Remove, &old[a]));
            a += 1;
        } else {
            script.push((Edit::Add, &new[b]));
            b += 1;
        }
    }
}

/// Returns the ranges of lines that are shown: changes with their context, joined where they touch.
fn hunks(lines: &[(Edit, &str)]) -> Vec<Range<usize>> {
    let mut hunks: Vec<Range<usize>> = Vec::new();
    let changed = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.0 != Edit::Keep);
    for (at, _) in changed {
        let (start, end) = (
            at.saturating_sub(CONTEXT),
            lines.len().min(at + CONTEXT + 1),
        );
        match hunks.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => hunks.push(start..end),
        }
    }
    hunks
}

const CONTEXT: usize = 3;
const MAX_CELLS: usize = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::SplitMix64;

    fn lines(text: &str) -> Vec<String> {
        text.split_terminator('\n').map(str::to_owned).collect()
    }

    /// Applies a diff, as `patch` does.
    fn patched(old: &[String], diff: &str) -> Vec<String> {
        let (mut new, mut at) = (Vec::new(), 0);
        for line in diff.lines().skip(2) {
            if let Some(header) = line.strip_prefix("@@ -") {
                let (start, rest) = header.split_once(',').unwrap();
                let count: usize = rest.split(' ').next().unwrap().parse().unwrap();
                let start: usize = start.parse().unwrap();
                let start = if count == 0 { start } else { start - 1 };
                new.extend_from_slice(&old[at..start]);
                at = start;
                continue;
            }
            let (sign, text) = line.split_at(1);
            if sign != "+" {
                assert_eq!(old[at], text);
                at += 1;
            }
            if sign != "-" {
                new.push(text.to_owned());
            }
        }
        new.extend_from_slice(&old[at..]);
        new
    }

    #[test]
    fn a_diff_turns_the_old_text_into_the_new_one() {
        let mut random = SplitMix64::new(11);
        for _ in 0..3000 {
            let mut text = || {
                let length = random.below(25);
                (0..length)
                    .map(|_| random.text("ab", 1))
                    .collect::<Vec<_>>()
            };
            let (old, new) = (text(), text());

            let diff = unified_diff("t", &old, &new);

            assert_eq!(patched(&old, &diff), new, "{diff}");
        }
    }

    #[test]
    fn a_diff_shows_three_lines_of_context() {
        let old = lines("1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        let new = lines("1\n2\n3\n4\nfive\n6\n7\n8\n9\n");

        let diff = unified_diff("t", &old, &new);

        let expected =
            "--- t (pinned)\n+++ t (offered)\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n";
        assert_eq!(diff, expected);
    }

    #[test]
    fn texts_that_are_too_large_to_compare_are_replaced() {
        let numbered = |sign: &str| {
            (0..2500)
                .map(|it| format!("{sign}{it}"))
                .collect::<Vec<_>>()
        };
        let (old, new) = (numbered("a"), numbered("b"));

        let diff = unified_diff("t", &old, &new);

        assert_eq!(patched(&old, &diff), new);
    }

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        assert_eq!(visible("é \"a\\b\" 🪢 日本"), "é \"a\\b\" 🪢 日本");
        assert_eq!(
            visible("a\u{1b}[2J\u{202E}\u{200B}\u{E0041}\r"),
            "a\\u{1b}[2J\\u{202e}\\u{200b}\\u{e0041}\\r"
        );
    }
}
