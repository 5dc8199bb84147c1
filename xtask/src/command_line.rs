//! From the words after `cargo xtask` to the command they name.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{bench, ci, conformance, deny, fuzz, hunt, interop, mutants, tidy};

/// Runs the command that `words` name and says how it went.
pub fn run(words: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = words.collect();
    let passed = match Command::parse(&words) {
        Ok(Command::Usage) => {
            println!("{USAGE}");
            true
        }
        Ok(Command::Ci(plan)) => ci::run(&workspace_root(), &plan),
        Ok(Command::Tidy) => tidy::run(&workspace_root()),
        Ok(Command::Mutants { only }) => mutants::run(&workspace_root(), &only),
        Ok(Command::Deny) => deny::run(&workspace_root()),
        Ok(Command::Conformance) => conformance::run(&workspace_root()),
        Ok(Command::Bench { words }) => bench::run(&workspace_root(), &words),
        Ok(Command::Counts(act)) => bench::counts(&workspace_root(), act),
        Ok(Command::Hunt(plan)) => hunt::run(&workspace_root(), &plan),
        Ok(Command::Interop(peers)) => {
            interop::run(&workspace_root(), peers, interop::Results::Write)
        }
        Ok(Command::Fuzz { target, seconds }) => fuzz::run(&workspace_root(), &target, seconds),
        Err(complaint) => {
            eprintln!("{complaint}\n\n{USAGE}");
            false
        }
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[derive(Debug, PartialEq)]
enum Command {
    Usage,
    Ci(ci::Plan),
    Tidy,
    Mutants { only: Vec<String> },
    Deny,
    Conformance,
    Bench { words: Vec<String> },
    Counts(bench::Counts),
    Hunt(hunt::Plan),
    Interop(interop::Peers),
    Fuzz { target: String, seconds: u64 },
}

impl Command {
    fn parse(words: &[String]) -> Result<Self, String> {
        let Some((name, rest)) = words.split_first() else {
            return Ok(Self::Usage);
        };
        match name.as_str() {
            "help" | "--help" | "-h" => Ok(Self::Usage),
            "ci" => ci::Plan::parse(rest).map(Self::Ci),
            "tidy" if rest.is_empty() => Ok(Self::Tidy),
            "tidy" => Err("`tidy` takes no arguments".to_owned()),
            "mutants" => Ok(Self::Mutants {
                only: rest.to_vec(),
            }),
            "deny" if rest.is_empty() => Ok(Self::Deny),
            "deny" => Err("`deny` takes no arguments".to_owned()),
            "conformance" if rest.is_empty() => Ok(Self::Conformance),
            "conformance" => Err("`conformance` takes no arguments".to_owned()),
            "bench" => Ok(Self::Bench {
                words: rest.to_vec(),
            }),
            "counts" if rest.is_empty() => Ok(Self::Counts(bench::Counts::Check)),
            "counts" if rest == ["--bless"] => Ok(Self::Counts(bench::Counts::Bless)),
            "counts" => Err("`counts` takes nothing but `--bless`".to_owned()),
            "hunt" => hunt::Plan::parse(rest).map(Self::Hunt),
            "interop" if rest.is_empty() => Ok(Self::Interop(interop::Peers::Sdks)),
            "interop" if rest == ["--real"] => Ok(Self::Interop(interop::Peers::Real)),
            "interop" => Err("`interop` takes nothing but `--real`".to_owned()),
            "fuzz" => parse_fuzz(rest),
            other => Err(format!("there is no command `{other}`")),
        }
    }
}

fn parse_fuzz(words: &[String]) -> Result<Command, String> {
    let (target, seconds) = match words {
        [target] => (target, fuzz::DEFAULT_SECONDS),
        [target, flag, seconds] if flag == "--seconds" => (
            target,
            seconds
                .parse()
                .map_err(|_| format!("`{seconds}` is not a number of seconds"))?,
        ),
        _ => return Err("`fuzz` takes one target, then perhaps `--seconds N`".to_owned()),
    };
    Ok(Command::Fuzz {
        target: target.clone(),
        seconds,
    })
}

/// The folder of the workspace this program was built from, wherever it is called from.
fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_owned()
}

const USAGE: &str = "\
Usage: cargo xtask <command>

  ci [--skip STEP]… [--keep-going]   everything that guards the project, in order; `deny`, `counts` and `real` with
                                     --all
                                     steps: fmt, tidy, deny, clippy, features, test, hostile, doc, no-legacy,
                                     counts, conformance, interop, real, mutants
  tidy                               the house rules that a text search can keep
  deny                               licenses, sources and bans of what we depend on, and advisories if there is a network
  mutants [NAME]…                    break each law on purpose; its test must notice
  conformance                        the official suite against our server and client (npm)
  bench [--quick] [--json] [LEG]…    what a message costs, next to a hand-written server and to rmcp
  counts [--bless]                   what a message costs in instructions, next to bench/counts.txt (valgrind)
  hunt [--from SEED] [--seeds N]     seeded schedules for the race hunter; one again, or for hours
       [--scenes A,B] [--max-broken N]   of these scenes only; on after a seed that breaks a law
  interop                            SDKs that others wrote, on both sides (npm and Python)
  interop --real                     programs that others wrote, as they come (npm, Python and git)
  fuzz TARGET [--seconds N]          random input for one decoder (nightly and cargo-fuzz)
                                     targets: json, message, sse, headers, admission, mux, challenge, jws, jwks,
                                     callback";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Command, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Command::parse(&words)
    }

    #[test]
    fn no_words_ask_for_the_usage() {
        assert_eq!(parse(""), Ok(Command::Usage));
    }

    #[test]
    fn counts_are_checked_unless_they_are_to_be_agreed_upon() {
        assert_eq!(parse("counts"), Ok(Command::Counts(bench::Counts::Check)));
        assert_eq!(
            parse("counts --bless"),
            Ok(Command::Counts(bench::Counts::Bless))
        );
        assert!(parse("counts --bles").is_err());
    }

    #[test]
    fn interop_is_about_sdks_unless_real_programs_are_asked_for() {
        let command = |peers| Ok(Command::Interop(peers));

        assert_eq!(parse("interop"), command(interop::Peers::Sdks));
        assert_eq!(parse("interop --real"), command(interop::Peers::Real));
        assert!(parse("interop --reel").is_err());
    }

    #[test]
    fn an_unknown_command_is_named_in_the_complaint() {
        assert!(parse("tidyy").unwrap_err().contains("`tidyy`"));
    }

    #[test]
    fn fuzzing_has_a_target_and_a_duration() {
        let expected = Command::Fuzz {
            target: "sse".to_owned(),
            seconds: 5,
        };

        assert_eq!(parse("fuzz sse --seconds 5"), Ok(expected));
        assert!(parse("fuzz").is_err());
        assert!(parse("fuzz sse --seconds soon").is_err());
    }
}
