//! `cargo xtask hunt`: more schedules for the race hunter than the tests have time for, or one again.

use std::path::Path;

use crate::process;

/// Plays the schedules of a plan on every core, in optimized code; true if all laws held.
pub(crate) fn run(root: &Path, plan: &Plan) -> bool {
    let mut hunt = process::cargo(root);
    hunt.args(["test", "--profile", "hunt", "--package", "bowline"])
        .args(["--test", "hunter", "--"])
        .args([TEST, "--exact", "--nocapture"])
        .env("BOWLINE_HUNT_FROM", plan.from.to_string())
        .env("BOWLINE_HUNT_SEEDS", plan.seeds.to_string())
        .env("BOWLINE_HUNT_MAX_BROKEN", plan.max_broken.to_string());
    if let Some(scenes) = &plan.scenes {
        hunt.env("BOWLINE_HUNT_SCENES", scenes);
    }
    process::show(&mut hunt).unwrap_or_else(|error| {
        println!("failed to start the hunt: {error}");
        false
    })
}

/// Which seeds to play.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    from: u64,
    seeds: u64,
    /// How many seeds may break a law before the hunt ends.
    max_broken: u64,
    /// The scenes to play, separated by commas; all of them without it.
    scenes: Option<String>,
}

impl Plan {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            from: DEFAULT_FROM,
            seeds: DEFAULT_SEEDS,
            max_broken: 1,
            scenes: None,
        };
        for pair in words.chunks(2) {
            let [flag, value] = pair else {
                return Err(format!("`{}` needs a value", pair[0]));
            };
            let number = match flag.as_str() {
                "--from" => &mut plan.from,
                "--seeds" => &mut plan.seeds,
                "--max-broken" => &mut plan.max_broken,
                "--scenes" => {
                    plan.scenes = Some(value.clone());
                    continue;
                }
                _ => return Err(format!("`hunt` does not understand `{flag}`")),
            };
            *number = value
                .parse()
                .map_err(|_| format!("`{value}` is not a number"))?;
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
            max_broken: 1,
            scenes: None,
        };

        assert_eq!(parse("--from 104261 --seeds 1"), Ok(again));
    }

    #[test]
    fn scenes_can_be_chosen() {
        let plan = parse("--scenes restart,goodbye --max-broken 5").unwrap();

        assert_eq!(plan.scenes.as_deref(), Some("restart,goodbye"));
        assert_eq!(plan.max_broken, 5);
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
