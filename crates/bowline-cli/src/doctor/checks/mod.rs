//! The checks: functions from observed facts to findings, without I/O.

pub(crate) mod answers;
pub(crate) mod auth;
pub(crate) mod cancel;
pub(crate) mod cost;
pub(crate) mod era;
pub(crate) mod legacy;
pub(crate) mod lists;
pub(crate) mod reach;
pub(crate) mod schemas;
pub(crate) mod source;
pub(crate) mod stdio;
pub(crate) mod token;

/// Joins names for a sentence, and leaves out all but the first ones.
pub(crate) fn names(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMES);
    let mut text = shown
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MAX_NAMES {
        text.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    text
}

/// `1 tool`, `2 tools`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

const MAX_NAMES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_names_are_shortened() {
        let of =
            |range: std::ops::Range<u8>| names(&range.map(|n| n.to_string()).collect::<Vec<_>>());

        assert_eq!(of(0..2), "`0`, `1`");
        assert!(of(0..9).ends_with("`4` and 4 more"));
        assert_eq!(
            (count(1, "tool"), count(2, "tool")),
            ("1 tool".into(), "2 tools".into())
        );
    }
}
