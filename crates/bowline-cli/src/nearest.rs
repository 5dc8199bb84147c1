//! Finds the name that was probably meant.

/// Returns the candidate that is closest to `name`, if one is close.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let scored = candidates.into_iter().map(|candidate| {
        let other = candidate.to_lowercase();
        let distance = strsim::damerau_levenshtein(&lower, &other);
        // `issue` for `create_issue`: a part is closer than its distance says.
        let is_part = lower.len() >= 3 && (other.contains(&lower) || lower.contains(&other));
        (if is_part { distance.min(1) } else { distance }, candidate)
    });
    let (distance, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    let length = name.chars().count();
    // Something must be the same: `c` is not almost `a`.
    let is_near =
        distance <= (length / 3).max(1) && distance < length.max(candidate.chars().count());
    is_near.then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_found_and_others_are_not() {
        let names = ["add", "create_issue", "echo"];

        assert_eq!(nearest("ad", names), Some("add"));
        assert_eq!(nearest("Ecoh", names), Some("echo"));
        assert_eq!(nearest("issue", names), Some("create_issue"));
        assert_eq!(nearest("weather", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest("c", ["a", "b"]), None);
    }
}
