//! The names of a tool's arguments, and which of them an unknown name probably stands for.

use bowline_core::shortened;
use serde_json::Value;

/// The names of the arguments that a schema defines.
#[derive(Debug)]
pub(super) struct ArgumentNames(Vec<String>);

impl ArgumentNames {
    /// Collects the members that the schema and its `allOf`, `anyOf` and `oneOf` define.
    pub(super) fn of(schema: &Value) -> Self {
        let mut names = Vec::new();
        collect(schema, &mut names);
        names.sort();
        names.dedup();
        Self(names)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0
            .binary_search_by(|known| known.as_str().cmp(name))
            .is_ok()
    }

    /// Returns the error for an unknown argument, with the known one that it is probably meant to be.
    pub(super) fn unknown(&self, name: &str) -> String {
        let unknown = format!("unknown argument `{}`", shortened(name));
        let known = self.0.iter().map(String::as_str).take(MAX_COMPARED);
        if let Some(nearest) = nearest(name, known) {
            return format!("{unknown}; did you mean `{nearest}`?");
        }
        match &self.0[..] {
            [] => format!("{unknown}; the tool has no arguments"),
            known => format!("{unknown}; expected {}", quoted_list(known)),
        }
    }

    /// Returns the unknown one of the given names that is probably meant to be the argument `missing`.
    #[cfg_attr(
        not(feature = "validate"),
        allow(dead_code, reason = "then serde reports a missing argument")
    )]
    pub(super) fn misspelled<'a>(
        &self,
        missing: &str,
        given: impl Iterator<Item = &'a str>,
    ) -> Option<&'a str> {
        // A caller can send any number of names.
        let unknown = given.filter(|name| !self.contains(name));
        nearest(missing, unknown.take(MAX_COMPARED))
    }
}

/// Returns the names in backticks, separated by commas; the first ones, if there are many.
pub(super) fn quoted_list(names: &[impl AsRef<str>]) -> String {
    let names = names.iter();
    listed(names.map(|name| format!("`{}`", shortened(name.as_ref()))))
}

/// Returns the items, separated by commas; the first ones, if there are many.
pub(super) fn listed(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(MAX_LISTED);
    let mut listed: Vec<String> = items.take(MAX_LISTED).collect();
    if more > 0 {
        listed.push(format!("… ({more} more)"));
    }
    listed.join(", ")
}

fn collect(schema: &Value, names: &mut Vec<String>) {
    if let Some(Value::Object(members)) = schema.get("properties") {
        names.extend(members.keys().cloned());
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for choice in schema
            .get(keyword)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            collect(choice, names);
        }
    }
}

/// Returns the candidate with the smallest distance to `name`, if it is at most a third of the longer one.
fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = normalized(name)?;
    let near = candidates.filter_map(|candidate| {
        let other = normalized(candidate)?;
        let limit = name.len().max(other.len()) / 3;
        let distance = distance(&name, &other);
        (distance <= limit).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the letters of a name without case and separators, so that `maxItems` equals `max_items`; `None` for long
/// names, because the cost of [`distance`] is the product of both lengths.
fn normalized(name: &str) -> Option<Vec<char>> {
    if name.len() > MAX_COMPARED_LEN {
        return None;
    }
    let letters = name.chars().filter(|letter| !"_-. ".contains(*letter));
    Some(letters.flat_map(char::to_lowercase).collect())
}

/// Returns how many letters must be inserted, removed, replaced or swapped with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(letter != other);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == b[j - 1] && a[i - 1] == *other {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

const MAX_COMPARED: usize = 64;
const MAX_COMPARED_LEN: usize = 48;
const MAX_LISTED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(names: &[&str]) -> ArgumentNames {
        let members = names.iter().map(|name| ((*name).to_owned(), json!({})));
        let members: serde_json::Map<String, Value> = members.collect();
        ArgumentNames::of(&json!({"type": "object", "properties": members}))
    }

    #[test]
    fn the_nearest_known_name_is_suggested() {
        let known = names(&["city", "country", "max_results", "x"]);
        for (unknown, meant) in [
            ("cty", "city"),
            ("ctiy", "city"),
            ("City", "city"),
            ("contry", "country"),
            ("maxResults", "max_results"),
            ("max-result", "max_results"),
        ] {
            let error = known.unknown(unknown);

            assert_eq!(
                error,
                format!("unknown argument `{unknown}`; did you mean `{meant}`?")
            );
        }
    }

    #[test]
    fn without_a_near_name_the_known_ones_are_listed() {
        let known = names(&["x", "y"]);

        assert_eq!(
            known.unknown("z"),
            "unknown argument `z`; expected `x`, `y`"
        );
        assert_eq!(
            names(&[]).unknown("z"),
            "unknown argument `z`; the tool has no arguments"
        );
    }

    #[test]
    fn a_missing_argument_is_found_among_unknown_names_only() {
        let known = names(&["start", "stat"]);

        assert_eq!(known.misspelled("start", ["stat"].into_iter()), None);
        assert_eq!(
            known.misspelled("start", ["stat", "strat"].into_iter()),
            Some("strat")
        );
    }

    #[test]
    fn long_and_many_names_are_neither_compared_nor_repeated() {
        let many: Vec<String> = (0..500)
            .map(|n| format!("argument_number_{n:03}"))
            .collect();
        let known = names(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let long = "argument".repeat(100_000);

        let error = known.unknown(&long);

        assert!(error.len() < 1000, "{error}");
        assert!(error.ends_with("… (484 more)"), "{error}");
        let endless = std::iter::repeat("nothing");
        assert_eq!(known.misspelled("argument", endless), None);
    }

    #[test]
    fn the_distance_counts_edits() {
        let distance = |a: &str, b: &str| {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            distance(&letters(a), &letters(b))
        };

        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("größe", "grösse"), 2);
    }
}
