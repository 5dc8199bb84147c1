//! `cargo xtask hunt`: more schedules for the race hunter than the tests have time for, or one again.

use std::path::Path;

use crate::process;

/// Plays the schedules of `seeds` seeds, beginning at `from`; true if all laws held.
pub(crate) fn run(root: &Path, plan: &Plan) -> bool {
    let hunted = process::show(
        process::cargo(root)
            .args(["test", "--package", "bowline", "--test", "hunter", "--"])
            .args([TEST, "--exact", "--nocapture"])
            .env("BOWLINE_HUNT_FROM", plan.from.to_string())
            .env("BOWLINE_HUNT_SEEDS", plan.seeds.to_string()),
    );
    hunted.unwrap_or_else(|error| {
        println!("the hunt could not be started: {error}");
        false
    })
}

/// Which seeds to play.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    from: u64,
    seeds: u64,
}

impl Plan {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            from: DEFAULT_FROM,
            seeds: DEFAULT_SEEDS,
        };
        for pair in words.chunks(2) {
            let [flag, number] = pair else {
                return Err(format!("`{}` needs a number", pair[0]));
            };
            let value = match flag.as_str() {
                "--from" => &mut plan.from,
                "--seeds" => &mut plan.seeds,
                _ => return Err(format!("`hunt` does not understand `{flag}`")),
            };
            *value = number
                .parse()
                .map_err(|_| format!("`{number}` is not a number"))?;
        }
        Ok(plan)
    }
}

const TEST: &str = "the_laws_hold_for_as_long_as_it_is_told";
/// Beyond what every run of the tests plays.
const DEFAULT_FROM: u64 = 10_000_000;
const DEFAULT_SEEDS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Plan, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Plan::parse(&words)
    }

    #[test]
    fn a_seed_can_be_played_again() {
        let again = Plan {
            from: 104_261,
            seeds: 1,
        };

        assert_eq!(parse("--from 104261 --seeds 1"), Ok(again));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!(parse("--forever 1").unwrap_err().contains("`--forever`"));
        assert!(parse("--seeds many").unwrap_err().contains("`many`"));
        assert!(parse("--from").unwrap_err().contains("`--from`"));
    }

    #[test]
    fn the_test_that_is_named_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let hunter = root.join("crates/bowline/tests/hunter/main.rs");

        let text = std::fs::read_to_string(hunter).unwrap();

        assert!(text.contains(&format!("fn {TEST}()")));
    }
}
