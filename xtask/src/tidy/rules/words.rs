//! Discouraged words: people instead of components, and idioms instead of technical terms.

use super::{Project, Violation, has_word};

/// Names and prose use technical terms: "the driver", not "whoever drives it".
pub(super) fn prose_is_plain(project: &Project<'_>) -> Vec<Violation> {
    let files = project.tree.files().iter().filter(|file| {
        let path = &file.path;
        path.starts_with("crates/") || path == "README.md" || path == "ARCHITECTURE.md"
    });
    let files = files.filter_map(|file| Some((&*file.path, file.text()?)));
    let found = files.flat_map(|(path, text)| {
        text.lines().enumerate().filter_map(move |(at, line)| {
            let lower = line.to_lowercase().replace('_', " ");
            let word = DISCOURAGED.iter().find(|word| has_word(&lower, word))?;
            let advice = format!("replace `{word}` by the component or the technical term");
            Some(Violation::new("words", path, at + 1, line, &advice))
        })
    });
    found.collect()
}

const DISCOURAGED: [&str; 6] = [
    "anybody",
    "cannot be had",
    "everybody",
    "nobody",
    "somebody",
    "whoever",
];

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    #[test]
    fn people_in_the_place_of_components_are_found_in_prose_and_names() {
        let text = "/// Wakes whoever waits.\nfn nobody_waits() {}\n/// Wakes the driver.\n";

        assert_eq!(lines(prose_is_plain, "crates/a/src/b.rs", text), [1, 2]);
        assert_eq!(lines(prose_is_plain, "xtask/src/b.rs", text), [0; 0]);
    }
}
