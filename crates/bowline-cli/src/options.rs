//! Parses the command line.

/// A parsed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CliCommand {
    Help,
    Demo(OutputFormat),
    ServeDemo(ServeTransport),
}

/// The output format of `bowline demo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// Text, in colours on a terminal.
    #[default]
    Text,
    /// Text without colours.
    Plain,
    /// A JSON object.
    Json,
}

/// The transport of `bowline serve-demo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServeTransport {
    Stdio {
        /// Whether to report events and counters on stderr.
        report: bool,
    },
    Http {
        port: u16,
    },
}

impl CliCommand {
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        match words.next().as_deref() {
            None | Some("help" | "-h" | "--help") => Ok(Self::Help),
            Some("demo") => parse_demo(words),
            Some("serve-demo") => parse_serve(words),
            Some(other) => Err(format!("unknown command `{other}`")),
        }
    }
}

fn parse_demo(words: impl Iterator<Item = String>) -> Result<CliCommand, String> {
    let mut format = OutputFormat::default();
    for word in words {
        format = match word.as_str() {
            "--plain" => OutputFormat::Plain,
            "--json" => OutputFormat::Json,
            "-h" | "--help" => return Ok(CliCommand::Help),
            other => return Err(format!("unknown option `{other}` of `demo`")),
        };
    }
    Ok(CliCommand::Demo(format))
}

fn parse_serve(mut words: impl Iterator<Item = String>) -> Result<CliCommand, String> {
    let (mut over_http, mut port, mut report) = (false, 0, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--transport" => {
                over_http = match words.next().as_deref() {
                    Some("stdio") => false,
                    Some("http") => true,
                    _ => return Err("`--transport` must be `stdio` or `http`".to_owned()),
                };
            }
            "--port" => {
                let given = words.next().and_then(|port| port.parse().ok());
                port = given.ok_or("`--port` must be a number up to 65535")?;
            }
            "--report" => report = true,
            "-h" | "--help" => return Ok(CliCommand::Help),
            other => return Err(format!("unknown option `{other}` of `serve-demo`")),
        }
    }
    Ok(CliCommand::ServeDemo(match over_http {
        true => ServeTransport::Http { port },
        false => ServeTransport::Stdio { report },
    }))
}

pub(crate) const HELP: &str = "\
Usage:
  bowline demo [--plain | --json]
      cancels calls on every transport in both eras, and shows how their handlers stop
  bowline serve-demo [--transport stdio | http] [--port PORT] [--report]
      serves the tools of the demonstration; with `--report`, a stdio server reports received
      cancellations and its counters on stderr";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CliCommand, String> {
        CliCommand::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn commands_are_understood_with_their_options_in_any_order() {
        assert_eq!(
            parse("demo --json"),
            Ok(CliCommand::Demo(OutputFormat::Json))
        );
        assert_eq!(
            parse("serve-demo --port 80 --transport http"),
            Ok(CliCommand::ServeDemo(ServeTransport::Http { port: 80 }))
        );
        assert_eq!(
            parse("serve-demo"),
            Ok(CliCommand::ServeDemo(ServeTransport::Stdio {
                report: false
            }))
        );
        assert_eq!(parse(""), Ok(CliCommand::Help));
    }

    #[test]
    fn unknown_arguments_are_named_in_the_error() {
        assert!(parse("dance").unwrap_err().contains("`dance`"));
        assert!(parse("demo --loud").unwrap_err().contains("`--loud`"));
        assert!(parse("serve-demo --port 70000").is_err());
        assert!(parse("serve-demo --transport pigeon").is_err());
    }
}
