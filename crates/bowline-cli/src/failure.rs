//! [`Failure`], why a command failed: for a person, with what to do next, and for a script, with an exit code.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use bowline::Error;
use bowline::client::ConnectTimeout;
use bowline::exchange::Dialect;

use crate::exit::Exit;
use crate::output::visible;

/// An error that ends the command.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    advice: Option<String>,
    /// Whether nothing is printed.
    is_silent: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            source: None,
            advice: None,
            is_silent: false,
        }
    }

    /// Invalid arguments.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A failure without an exit code of its own.
    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(Exit::Failure, message)
    }

    /// The user pressed Ctrl-C.
    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }

    /// A failure that is this error.
    pub(crate) fn of(error: &(dyn StdError + 'static)) -> Self {
        Self::other(chain(error))
    }

    /// Sets the cause, which is printed after the message.
    #[must_use]
    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets what to do next.
    #[must_use]
    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The error of connecting to `target`.
    pub(crate) fn connecting(target: &str, error: Error) -> Self {
        let timeout = error.source().and_then(|source| source.downcast_ref());
        let timeout: Option<ConnectTimeout> = timeout.copied();
        let mut failure = Self::from(error);
        if let Some(timeout) = timeout {
            failure.source = None; // names the setting of the SDK
            failure.advice = Some(
                "more time, with --connect-timeout; or `bowline doctor`, which finds out why"
                    .to_owned(),
            );
            if failure.message.starts_with("failed to connect within") {
                failure.message = format!("the server did not answer within {:?}", timeout.after);
            }
        }
        if failure.exit == Exit::Usage {
            return failure; // it is not the server that is wrong
        }
        if failure.exit == Exit::TimedOut {
            failure.advice = None; // that of calls, whose time is another
        }
        failure.exit = Exit::Connect;
        // The message of a URL names it already.
        if !failure.message.starts_with("failed to connect") {
            let target = visible(target);
            failure.message = format!("failed to connect to {target}: {}", failure.message);
        }
        failure.advice.get_or_insert_with(|| {
            "`bowline doctor` with the same server, which finds out why".to_owned()
        });
        failure
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the message with its causes and the advice, on one line.
    pub(crate) fn with_advice(&self) -> String {
        match &self.advice {
            Some(advice) => format!("{self}; try: {advice}"),
            None => self.to_string(),
        }
    }

    /// Prints the message with its causes, and what to do next, to stderr.
    pub(crate) fn print(&self) {
        if self.is_silent {
            return;
        }
        eprintln!("bowline: {self}");
        if let Some(advice) = &self.advice {
            eprintln!("try: {advice}");
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The texts of servers are part of some messages.
        f.write_str(&visible(&chain(self)))
    }
}

/// Returns the text of an error and of its causes.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = match error.downcast_ref::<Failure>() {
        Some(failure) => failure.message.clone(),
        None => error.to_string(),
    };
    let mut printed = text.clone();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors of other crates repeat their cause in their own text.
        if !printed.contains(&next) {
            text = format!("{text}: {next}");
        }
        printed = next;
        cause = error.source();
    }
    text
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<io::Error> for Failure {
    /// The error of printing. If the reader of stdout is gone there is nothing more to say.
    fn from(error: io::Error) -> Self {
        let is_gone = error.kind() == io::ErrorKind::BrokenPipe;
        let mut failure = Self::other("failed to print").caused_by(error);
        failure.is_silent = is_gone;
        failure
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Rpc(_) => Exit::Rpc,
            Error::Timeout { .. } => Exit::TimedOut,
            Error::Unauthorized { .. } => Exit::Connect,
            Error::Misuse { .. } => Exit::Usage,
            _ if error.is_disconnected() => Exit::Connect,
            _ => Exit::Failure,
        };
        let advice = match &error {
            Error::Unauthorized { .. } => {
                Some("pass a token: --header 'Authorization: Bearer …'".to_owned())
            }
            Error::Timeout { .. } => Some("more time, with --timeout".to_owned()),
            Error::Rpc(error) => version_advice(&error.message),
            _ => None,
        };
        let (message, source) = match error {
            Error::Rpc(error) => {
                let data = error.data.as_ref().map(|data| shortened(data.as_str()));
                let data = data.map_or(String::new(), |data| format!("\n  data: {data}"));
                (format!("{error}{data}"), None)
            }
            Error::Transport { what, source } => (what, source),
            Error::Protocol { ref what, .. } => {
                let message = format!("the server violated the protocol: {what}");
                (message, into_source(error))
            }
            Error::Unauthorized { .. } | Error::UnexpectedType { .. } => {
                (error.to_string(), into_source(error))
            }
            error => (error.to_string(), None),
        };
        Self {
            exit,
            message,
            source,
            advice,
            is_silent: false,
        }
    }
}

/// Returns what to do if a server answers that it cannot ask its client: those of the official SDKs can in older versions
/// only, and say it in words of their own.
pub(crate) fn version_advice(answer: &str) -> Option<String> {
    let modern = Dialect::LATEST.version;
    let is_refused = answer.contains("no back-channel")
        || answer.contains(&format!("not available on protocol revision {modern}"))
        || answer.contains(&format!("unavailable on {modern} connections"));
    is_refused.then(|| format!("--protocol-version {}", Dialect::LATEST_LEGACY.version))
}

fn into_source(error: Error) -> Option<Box<dyn StdError + Send + Sync>> {
    match error {
        Error::Protocol { source, .. }
        | Error::Transport { source, .. }
        | Error::Unauthorized { source, .. }
        | Error::UnexpectedType { source, .. } => source,
        _ => None,
    }
}

/// Returns the beginning of a text that may be of any length.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_DATA) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// In characters.
const MAX_DATA: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use bowline::{ErrorCode, Json, RpcError};
    use serde_json::json;

    fn refused() -> Error {
        Error::Transport {
            what: "failed to connect to http://x.example".into(),
            source: Some(io::Error::other("refused\u{1b}[2J").into()),
        }
    }

    #[test]
    fn a_failure_to_connect_names_the_server_once_and_its_cause() {
        let failure = Failure::connecting("http://x.example", refused());

        assert_eq!(failure.exit(), Exit::Connect);
        assert_eq!(
            failure.to_string(),
            "failed to connect to http://x.example: refused␛[2J"
        );
    }

    #[test]
    fn connecting_and_calls_that_time_out_have_different_advice() {
        let timeout = || Error::Timeout {
            after: std::time::Duration::from_secs(5),
        };

        let call = Failure::from(timeout()).with_advice();
        let connecting = Failure::connecting("x", timeout()).with_advice();

        assert!(call.contains("--timeout"), "{call}");
        assert!(connecting.contains("`bowline doctor`"), "{connecting}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connect_timeout_names_its_option_and_not_the_setting_of_the_sdk() {
        let (wire, _silent) = bowline::wire::memory();
        let limit = std::time::Duration::from_secs(2);
        let client = bowline::Client::from_wire(wire).connect_timeout(limit);
        let error = client.await.map(drop).unwrap_err();

        let failure = Failure::connecting("http://x.example", error);

        assert_eq!(failure.exit(), Exit::Connect);
        assert_eq!(
            failure.with_advice(),
            "failed to connect to http://x.example: the server did not answer within 2s; try: more time, \
             with --connect-timeout; or `bowline doctor`, which finds out why"
        );
    }

    #[test]
    fn a_server_that_can_ask_in_older_versions_only_has_the_version_as_advice() {
        let advice = |message: &str| {
            let rpc = RpcError::new(ErrorCode::INVALID_REQUEST, message);
            Failure::from(Error::Rpc(rpc)).with_advice()
        };

        for refusal in [
            "Cannot send 'elicitation/create': this transport context has no back-channel",
            "Server-to-client requests are not available on protocol revision 2026-07-28",
            "elicitation via server-initiated requests is unavailable on 2026-07-28 connections",
        ] {
            let advice = advice(refusal);
            assert!(
                advice.ends_with("; try: --protocol-version 2025-11-25"),
                "{advice}"
            );
        }
        assert!(!advice("no").contains("try:"));
    }

    #[test]
    fn kinds_of_errors_have_their_exit_codes() {
        let data = Json::from(json!({"why": "x"}));
        let rpc = RpcError::new(ErrorCode::INVALID_PARAMS, "no").with_data(data);
        let failure = Failure::from(Error::Rpc(rpc));
        assert_eq!(failure.exit(), Exit::Rpc);
        assert!(
            failure.to_string().ends_with("data: {\"why\":\"x\"}"),
            "{failure}"
        );

        let after = std::time::Duration::from_secs(1);
        assert_eq!(
            Failure::from(Error::Timeout { after }).exit(),
            Exit::TimedOut
        );
        let misuse = || Error::Misuse { what: "no".into() };
        assert_eq!(Failure::connecting("x", misuse()).exit(), Exit::Usage);
        assert_eq!(Failure::from(refused()).exit(), Exit::Connect);
    }
}
