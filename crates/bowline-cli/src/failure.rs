//! [`Failure`], why a command failed: for a person, with what to do next, and for a script, with an exit code.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use bowline::Error;
use bowline::client::ConnectTimeout;
use bowline::exchange::Dialect;

use crate::encryption;
use crate::exit::Exit;
use crate::output::visible;
use crate::suggestion::Suggestion;
use crate::target::Target;

/// An error that ends the command.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    // Boxed, since every function that can fail returns room for it.
    suggestion: Option<Box<Suggestion>>,
    /// What to do, in prose.
    hint: Option<String>,
    /// Whether the server requires authorization, or refused the one that it got.
    is_unauthorized: bool,
    /// Whether nothing is printed.
    is_silent: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            source: None,
            suggestion: None,
            hint: None,
            is_unauthorized: false,
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

    /// Sets the command to try.
    #[must_use]
    pub(crate) fn suggest(mut self, suggestion: Suggestion) -> Self {
        self.suggestion = Some(Box::new(suggestion));
        self
    }

    /// Sets what to do, in prose. A command to try is a [`Suggestion`], so that a test runs it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error of connecting to `target`.
    pub(crate) fn connecting(target: &Target, error: Error) -> Self {
        let cause = ConnectFailure::of(&error);
        let timeout = error.source().and_then(|source| source.downcast_ref());
        let timeout: Option<ConnectTimeout> = timeout.copied();
        let mut failure = Self::from(error);
        if let Some(timeout) = timeout {
            failure.source = None; // names the setting of the SDK
            if failure.message.starts_with("failed to connect within") {
                failure.message = format!("the server did not answer within {:?}", timeout.after);
            }
        }
        if failure.exit == Exit::Usage {
            return failure; // it is not the server that is wrong
        }
        failure.hint = timeout.map(|_| "give it more time, with --connect-timeout".to_owned());
        failure.exit = Exit::Connect;
        // The message of a URL names it already.
        if !failure.message.starts_with("failed to connect") {
            let target = target.to_string();
            failure.message = format!(
                "failed to connect to {}: {}",
                visible(&target),
                failure.message
            );
        }
        if failure.is_unauthorized {
            return failure.at(target);
        }
        match (cause, target) {
            (ConnectFailure::UnknownName, Target::Url(url)) => {
                let name = encryption::host_of(&url.url).unwrap_or_default();
                failure.hint(format!("check the name `{name}`: it has no address in DNS"))
            }
            (ConnectFailure::Refused, Target::Url(_)) => {
                failure.hint("check that the server runs, and the port: nothing listens there")
            }
            (ConnectFailure::NotFound, Target::Command(command)) if command.is_one_word() => {
                failure.suggest(Suggestion::SplitCommand)
            }
            (ConnectFailure::NotFound, Target::Command(_)) => failure,
            (ConnectFailure::OtherPath(path), Target::Url(url)) => match url.with_path(&path) {
                Some(other) => failure.suggest(Suggestion::OtherPath(url.url.clone(), other)),
                None => failure.suggest(Suggestion::Doctor),
            },
            _ => failure.suggest(Suggestion::Doctor),
        }
    }

    /// Completes the failure of a request to `target`: what to do if the server requires authorization.
    #[must_use]
    pub(crate) fn at(mut self, target: &Target) -> Self {
        let Target::Url(url) = target else {
            return self;
        };
        if !self.is_unauthorized {
            return self;
        }
        if url.headers.iter().any(|header| header.is("authorization")) {
            self.message = self
                .message
                .replace(REQUIRES_AUTHORIZATION, "the server refused this token");
            return self.hint(
                "the `Authorization` that was sent may have expired, or be for another server",
            );
        }
        let hint = match encryption::is_exposed(&url.url) {
            true => {
                "the connection is not encrypted, and a token would be readable on its way: use the https:// URL of the server"
            }
            false => "pass a token, with --header 'Authorization: Bearer …'",
        };
        self.hint(hint)
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn suggestion(&self) -> Option<&Suggestion> {
        self.suggestion.as_deref()
    }

    /// Returns the message with its causes and the hint, on one line.
    pub(crate) fn with_hint(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{self}; {}", visible(hint)),
            None => self.to_string(),
        }
    }

    /// Prints the message with its causes, a command to try, and a hint to stderr. `words` are what the user typed.
    pub(crate) fn print(&self, words: &[String]) {
        if self.is_silent {
            return;
        }
        eprintln!("bowline: {self}");
        if let Some(line) = self.suggestion.as_ref().and_then(|it| it.line(words)) {
            eprintln!("try: {line}");
        }
        if let Some(hint) = &self.hint {
            eprintln!("hint: {}", visible(hint));
        }
    }
}

/// Why there is no connection, as far as it changes what to do.
#[derive(Debug, PartialEq, Eq)]
enum ConnectFailure {
    UnknownName,
    Refused,
    /// The program does not exist.
    NotFound,
    /// The server says that it is at this path.
    OtherPath(String),
    Other,
}

impl ConnectFailure {
    fn of(error: &Error) -> Self {
        let text = chain(error);
        if let Some((_, path)) = text.split_once("no MCP endpoint at `")
            && let Some((_, path)) = path.split_once("it is at `")
            && let Some((path, _)) = path.split_once('`')
        {
            return Self::OtherPath(path.to_owned());
        }
        if text.contains("failed to start `") && text.contains("no such program") {
            return Self::NotFound;
        }
        let mut cause = StdError::source(error);
        while let Some(error) = cause {
            if error.to_string() == "dns error" {
                return Self::UnknownName;
            }
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            match kind {
                Some(io::ErrorKind::ConnectionRefused) => return Self::Refused,
                _ => cause = error.source(),
            }
        }
        match text.contains("failed to start `") {
            true => Self::NotFound,
            false => Self::Other,
        }
    }
}

const REQUIRES_AUTHORIZATION: &str = "the server requires authorization";

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
        let is_unauthorized = matches!(error, Error::Unauthorized { .. });
        let hint = match &error {
            Error::Timeout { .. } => Some("give it more time, with --timeout".to_owned()),
            Error::Rpc(error) => version_hint(&error.message),
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
            suggestion: None,
            hint,
            is_unauthorized,
            is_silent: false,
        }
    }
}

/// Returns what to do if a server answers that it cannot ask its client: those of the official SDKs can in older versions
/// only, and say it in words of their own.
pub(crate) fn version_hint(answer: &str) -> Option<String> {
    let modern = Dialect::LATEST.version;
    let is_refused = answer.contains("no back-channel")
        || answer.contains(&format!("not available on protocol revision {modern}"))
        || answer.contains(&format!("unavailable on {modern} connections"));
    let older = Dialect::LATEST_LEGACY.version;
    is_refused.then(|| format!("it can ask in older versions: use --protocol-version {older}"))
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
    use crate::sign_in::SignIn;
    use crate::target::UrlTarget;
    use crate::values::NamedValue;
    use bowline::{ErrorCode, Json, RpcError};
    use serde_json::json;

    fn refused() -> Error {
        Error::Transport {
            what: "failed to connect to http://x.example".into(),
            source: Some(io::Error::other("refused\u{1b}[2J").into()),
        }
    }

    fn url(url: &str, header: Option<(&str, &str)>) -> Target {
        Target::Url(UrlTarget {
            url: url.to_owned(),
            headers: (header.iter())
                .map(|(name, value)| NamedValue {
                    name: (*name).to_owned(),
                    value: (*value).to_owned(),
                })
                .collect(),
            sign_in: SignIn::Never,
        })
    }

    #[test]
    fn a_failure_to_connect_names_the_server_once_and_its_cause() {
        let failure = Failure::connecting(&url("http://x.example", None), refused());

        assert_eq!(failure.exit(), Exit::Connect);
        assert_eq!(
            failure.to_string(),
            "failed to connect to http://x.example: refused␛[2J"
        );
    }

    #[test]
    fn the_doctor_is_suggested_only_where_the_cause_is_not_in_the_message() {
        let error = |kind: io::ErrorKind| Error::Transport {
            what: "failed to connect to http://x.example".into(),
            source: Some(io::Error::from(kind).into()),
        };
        let target = url("http://x.example", None);

        let refused = Failure::connecting(&target, error(io::ErrorKind::ConnectionRefused));
        let other = Failure::connecting(&target, error(io::ErrorKind::ConnectionReset));

        assert_eq!(refused.suggestion(), None);
        assert!(refused.with_hint().contains("nothing listens"), "{refused}");
        assert_eq!(other.suggestion(), Some(&Suggestion::Doctor));
    }

    #[test]
    fn no_token_is_asked_for_that_would_be_sent_unencrypted() {
        let unauthorized = || Error::Unauthorized {
            challenges: Vec::new(),
            source: None,
        };
        let connecting = |target| Failure::connecting(&target, unauthorized()).with_hint();
        let token = Some(("Authorization", "Bearer secret"));

        for near in [
            "https://x.example/mcp",
            "http://127.0.0.1:1/mcp",
            "http://localhost/mcp",
        ] {
            assert!(connecting(url(near, None)).contains("Bearer …"), "{near}");
        }
        for far in [
            "http://x.example/mcp",
            "http://192.0.2.2:8000/mcp",
            "http://mcp:8000",
        ] {
            let text = connecting(url(far, None));
            assert!(text.contains("use the https:// URL"), "{text}");
            assert!(!text.contains("--header"), "{text}");
        }
        let refused = connecting(url("https://x.example/mcp", token));
        assert!(
            refused.contains("the server refused this token"),
            "{refused}"
        );
        assert!(!refused.contains("requires authorization"), "{refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }

    #[test]
    fn connecting_and_calls_that_time_out_have_different_advice() {
        let timeout = || Error::Timeout {
            after: std::time::Duration::from_secs(5),
        };

        let call = Failure::from(timeout());
        let connecting = Failure::connecting(&url("http://x.example", None), timeout());

        assert!(call.with_hint().contains("--timeout"), "{call}");
        assert_eq!(connecting.suggestion(), Some(&Suggestion::Doctor));
        assert!(
            !connecting.with_hint().contains("--timeout"),
            "{connecting}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connect_timeout_names_its_option_and_not_the_setting_of_the_sdk() {
        let (wire, _silent) = bowline::wire::memory();
        let limit = std::time::Duration::from_secs(2);
        let client = bowline::Client::from_wire(wire).connect_timeout(limit);
        let error = client.await.map(drop).unwrap_err();

        let failure = Failure::connecting(&url("http://x.example", None), error);

        assert_eq!(failure.exit(), Exit::Connect);
        assert_eq!(
            failure.with_hint(),
            "failed to connect to http://x.example: the server did not answer within 2s; give it more time, with \
             --connect-timeout"
        );
        assert_eq!(failure.suggestion(), Some(&Suggestion::Doctor));
    }

    #[test]
    fn a_server_that_can_ask_in_older_versions_only_has_the_version_as_hint() {
        let hinted = |message: &str| {
            let rpc = RpcError::new(ErrorCode::INVALID_REQUEST, message);
            Failure::from(Error::Rpc(rpc)).with_hint()
        };

        for refusal in [
            "Cannot send 'elicitation/create': this transport context has no back-channel",
            "Server-to-client requests are not available on protocol revision 2026-07-28",
            "elicitation via server-initiated requests is unavailable on 2026-07-28 connections",
        ] {
            let hinted = hinted(refusal);
            assert!(
                hinted
                    .ends_with("; it can ask in older versions: use --protocol-version 2025-11-25"),
                "{hinted}"
            );
        }
        assert!(!hinted("no").contains("use "));
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
        assert_eq!(
            Failure::connecting(&url("http://x.example", None), misuse()).exit(),
            Exit::Usage
        );
        assert_eq!(Failure::from(refused()).exit(), Exit::Connect);
    }
}
