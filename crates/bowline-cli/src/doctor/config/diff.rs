//! Shows what differs between two texts, for the consent of the user.

/// Returns the lines that differ, with `-` and `+`, and some equal lines around them. The change is in one place.
pub(crate) fn diff(before: &str, after: &str) -> Vec<String> {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let same = before
        .iter()
        .zip(&after)
        .take_while(|(a, b)| a == b)
        .count();
    let (rest_before, rest_after) = (&before[same..], &after[same..]);
    let tail = rest_before.iter().rev().zip(rest_after.iter().rev());
    let tail = tail.take_while(|(a, b)| a == b).count();
    let removed = &rest_before[..rest_before.len() - tail];
    let added = &rest_after[..rest_after.len() - tail];
    if removed.is_empty() && added.is_empty() {
        return Vec::new();
    }
    let line = |sign: char, text: &&str| format!("{sign} {text}");
    let start = same.saturating_sub(CONTEXT);
    let end = (same + removed.len() + CONTEXT).min(before.len());
    let mut lines: Vec<String> = before[start..same].iter().map(|it| line(' ', it)).collect();
    lines.extend(changed_lines(removed, added));
    lines.extend(
        before[same + removed.len()..end]
            .iter()
            .map(|it| line(' ', it)),
    );
    lines
}

/// Returns the lines of a changed part. Lines in it that are equal at the same place count as unchanged.
fn changed_lines(removed: &[&str], added: &[&str]) -> Vec<String> {
    if removed.len() != added.len() {
        let removed = removed.iter().map(|it| format!("- {it}"));
        return removed
            .chain(added.iter().map(|it| format!("+ {it}")))
            .collect();
    }
    let pairs = removed.iter().zip(added);
    let lines = pairs.flat_map(|(removed, added)| match removed == added {
        true => vec![format!("  {removed}")],
        false => vec![format!("- {removed}"), format!("+ {added}")],
    });
    lines.collect()
}

const CONTEXT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_that_differ_have_a_sign() {
        assert_eq!(
            diff("a\nb\nc\nd\ne\nf", "a\nb\nc\nX\ne\nf"),
            ["  b", "  c", "- d", "+ X", "  e", "  f"]
        );
        assert_eq!(diff("a\nb", "a\nx\nb"), ["  a", "+ x", "  b"]);
        assert_eq!(
            diff("a\nb\nc", "x\nb\ny"),
            ["- a", "+ x", "  b", "- c", "+ y"]
        );
        assert!(diff("a", "a").is_empty());
        assert_eq!(diff("", "a"), ["+ a"]);
    }
}
