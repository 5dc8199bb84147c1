//! The command line.

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Demo(Show),
    ServeDemo(Serve),
}

/// How to show what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Show {
    /// As text, in colours if it goes to a terminal.
    #[default]
    Text,
    /// As text without colours.
    Plain,
    /// As data.
    Json,
}

/// How to serve the fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serve {
    Stdio {
        /// Whether to tell on stderr what was heard and counted.
        tell: bool,
    },
    Http {
        port: u16,
    },
}

impl Command {
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        match words.next().as_deref() {
            None | Some("help" | "-h" | "--help") => Ok(Self::Help),
            Some("demo") => parse_demo(words),
            Some("serve-demo") => parse_serve(words),
            Some(other) => Err(format!("there is no command `{other}`")),
        }
    }
}

fn parse_demo(words: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut show = Show::default();
    for word in words {
        show = match word.as_str() {
            "--plain" => Show::Plain,
            "--json" => Show::Json,
            "-h" | "--help" => return Ok(Command::Help),
            other => return Err(format!("`demo` does not understand `{other}`")),
        };
    }
    Ok(Command::Demo(show))
}

fn parse_serve(mut words: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut over_http, mut port, mut tell) = (false, 0, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--transport" => {
                over_http = match words.next().as_deref() {
                    Some("stdio") => false,
                    Some("http") => true,
                    _ => return Err("`--transport` is `stdio` or `http`".to_owned()),
                };
            }
            "--port" => {
                let given = words.next().and_then(|port| port.parse().ok());
                port = given.ok_or("`--port` needs a number up to 65535")?;
            }
            "--tell" => tell = true,
            "-h" | "--help" => return Ok(Command::Help),
            other => return Err(format!("`serve-demo` does not understand `{other}`")),
        }
    }
    Ok(Command::ServeDemo(match over_http {
        true => Serve::Http { port },
        false => Serve::Stdio { tell },
    }))
}

pub(crate) const HELP: &str = "\
Usage:
  bowline demo [--plain | --json]
      lets go of calls on every transport in both eras, and shows what becomes of them
  bowline serve-demo [--transport stdio | http] [--port PORT] [--tell]
      serves the tools of the demonstration; with `--tell`, what a stdio server heard and counted is
      written to stderr";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn commands_are_understood_with_their_options_in_any_order() {
        assert_eq!(parse("demo --json"), Ok(Command::Demo(Show::Json)));
        assert_eq!(
            parse("serve-demo --port 80 --transport http"),
            Ok(Command::ServeDemo(Serve::Http { port: 80 }))
        );
        assert_eq!(
            parse("serve-demo"),
            Ok(Command::ServeDemo(Serve::Stdio { tell: false }))
        );
        assert_eq!(parse(""), Ok(Command::Help));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert!(parse("dance").unwrap_err().contains("`dance`"));
        assert!(parse("demo --loud").unwrap_err().contains("`--loud`"));
        assert!(parse("serve-demo --port 70000").is_err());
        assert!(parse("serve-demo --transport pigeon").is_err());
    }
}
