//! `bowline watch`: shows what changes at a server, until Ctrl-C.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use bowline::client::{Change, ChangeFilter, Reconnect};
use bowline::types::ServerCapabilities;
use bowline::{Client, Error, ErrorCode};
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::call::{LogLevel, log_text, parse_level};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::{interrupted, until_interrupted};
use crate::log::log_to_stderr;
use crate::output::{Output, OutputOptions, Style, visible_line};
use crate::target::{ConnectOptions, finish, split_words};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(override_usage = "\
bowline watch [OPTIONS] TARGET [URI]...
       bowline watch [OPTIONS] [URI]... -- COMMAND...")]
pub(crate) struct WatchOptions {
    /// The server (unless there is a command after `--`), and URIs of resources.
    #[arg(value_name = "TARGET URI")]
    words: Vec<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
    /// Print the text of a resource whenever it changes.
    #[arg(long)]
    read: bool,
    /// Show log messages of at least this level: debug, info, warning, error or none.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = parse_level)]
    log_level: LogLevel,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

/// Prints changes until Ctrl-C.
///
/// # Errors
///
/// If the server cannot be reached, or stays lost.
///
/// # Cancel safety
///
/// Dropping it ends the subscription.
pub(crate) async fn run(options: WatchOptions) -> Result<Exit, Failure> {
    log_to_stderr(options.connect.verbose);
    let output = options.output.output();
    let (target, uris) = split_words(&options.words, &options.command, &options.connect)?;
    let (logs, mut logged) = mpsc::channel(MAX_QUEUED);
    let connecting = target.connect(&options.connect, |builder| {
        let builder = builder.reconnect(Reconnect::default());
        match options.log_level.0 {
            // Messages that come faster than they are printed are lost.
            Some(level) => builder
                .log_level(level)
                .on_log(move |it| drop(logs.try_send(it))),
            None => builder,
        }
    });
    let client = until_interrupted(connecting).await?;
    let watching = async {
        let mut watcher = Watcher::start(&client, uris, &options, output).await?;
        let mut changes = client.watch(watcher.filter.clone());
        changes.subscribed().await.map_err(no_subscriptions)?;
        watcher.announce()?;
        loop {
            tokio::select! {
                biased; // changes are fewer than log messages
                change = changes.next() => match change? {
                    Some(change) => watcher.show(change).await?,
                    None => return Ok::<_, Failure>(()),
                },
                Some(message) = logged.recv() => {
                    let mut event = serde_json::to_value(&message).unwrap_or_default();
                    event["event"] = "log".into();
                    watcher.print(&log_text(&message), event)?;
                }
            }
        }
    };
    let ended = tokio::select! {
        biased; // an error counts
        ended = watching => ended,
        () = interrupted() => Ok(()),
    };
    finish(client).await;
    ended.map(|()| Exit::Success)
}

/// The failure of a subscription. A modern server need not have any.
fn no_subscriptions(error: Error) -> Failure {
    match &error {
        Error::Rpc(rpc) if rpc.code == ErrorCode::METHOD_NOT_FOUND => {
            let what = "the server does not notify of changes: it has no `subscriptions/listen`";
            Failure::new(Exit::Rpc, what)
                .hint("a server that has an older version may notify in it; choose it with --protocol-version")
        }
        _ => error.into(),
    }
}

/// What is watched, and what is known of it.
struct Watcher {
    client: Client,
    filter: ChangeFilter,
    resources: usize,
    reads: bool,
    output: Output,
    tools: Option<BTreeSet<String>>,
    prompts: Option<BTreeSet<String>>,
    uris: Option<BTreeSet<String>>,
}

impl Watcher {
    async fn start(
        client: &Client,
        uris: &[String],
        options: &WatchOptions,
        output: Output,
    ) -> Result<Self, Failure> {
        let mut watcher = Self {
            client: client.clone(),
            filter: ChangeFilter::lists(),
            resources: 0,
            reads: options.read,
            output,
            tools: None,
            prompts: None,
            uris: None,
        };
        watcher.tools = watcher.list(Kind::Tools).await;
        watcher.prompts = watcher.list(Kind::Prompts).await;
        watcher.uris = watcher.list(Kind::Resources).await;
        let can_subscribe = client
            .server_capabilities()
            .and_then(|it| it.resources.as_ref())
            .is_none_or(|it| it.subscribe != Some(false));
        let watched: Vec<String> = match (uris.is_empty(), &watcher.uris) {
            (false, _) => uris.to_vec(),
            (true, Some(listed)) if can_subscribe => {
                listed.iter().take(MAX_RESOURCES).cloned().collect()
            }
            (true, _) => Vec::new(),
        };
        watcher.resources = watched.len();
        watcher.filter = watched
            .into_iter()
            .fold(watcher.filter, ChangeFilter::resource);
        Ok(watcher)
    }

    fn announce(&self) -> Result<(), Failure> {
        let (version, count) = (self.client.dialect().version, self.resources);
        let text = format!("watching lists and {count} resources (protocol {version})");
        self.print(
            &text,
            json!({"event": "watching", "resources": count, "protocolVersion": version}),
        )
    }

    async fn show(&mut self, change: Change) -> Result<(), Failure> {
        match change {
            Change::Tools => self.show_list(Kind::Tools).await,
            Change::Prompts => self.show_list(Kind::Prompts).await,
            Change::Resources => self.show_list(Kind::Resources).await,
            Change::Resource(uri) => {
                let text = format!("updated {}", visible_line(&uri));
                let mut event = json!({"event": "resource", "uri": uri});
                let content = match self.reads {
                    true => self.client.read_resource(uri.as_str()).refresh().await.ok(),
                    false => None,
                };
                if let Some(content) = &content {
                    event["contents"] = serde_json::to_value(&content.contents).unwrap_or_default();
                }
                self.print(&text, event)?;
                let texts = content
                    .iter()
                    .flat_map(|it| &it.contents)
                    .filter_map(|it| it.as_text());
                for text in texts.filter(|_| !self.output.is_json()) {
                    self.output.line(crate::output::visible(text))?;
                }
                Ok(())
            }
            Change::Missed => {
                let event = json!({"event": "missed"});
                self.print("connected again; changes may have been missed", event)
            }
            Change::Other(notification) => {
                let method = notification.method.to_string();
                let text = visible_line(&method).into_owned();
                self.print(&text, json!({"event": "notification", "method": method}))
            }
            _ => Ok(()),
        }
    }

    /// Requests a list again, and shows which names are new and which are gone.
    async fn show_list(&mut self, kind: Kind) -> Result<(), Failure> {
        let new = self.list(kind).await;
        let known = match kind {
            Kind::Tools => &mut self.tools,
            Kind::Prompts => &mut self.prompts,
            Kind::Resources => &mut self.uris,
        };
        let old = std::mem::replace(known, new.clone());
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        let added: Vec<_> = new.difference(&old).cloned().collect();
        let removed: Vec<_> = old.difference(&new).cloned().collect();
        let name = kind.name();
        let added_text = added.iter().map(|it| format!(" +{}", visible_line(it)));
        let removed_text = removed.iter().map(|it| format!(" -{}", visible_line(it)));
        let text: String = added_text.chain(removed_text).collect();
        let event = json!({"event": name, "added": added, "removed": removed});
        self.print(&format!("{name} changed{text}"), event)
    }

    /// Returns the names of a list; `None` if the server has none.
    async fn list(&self, kind: Kind) -> Option<BTreeSet<String>> {
        let offered = self.client.server_capabilities();
        let has = |offers: fn(&ServerCapabilities) -> bool| offered.is_none_or(offers);
        let client = &self.client;
        match kind {
            Kind::Tools if has(|it| it.tools.is_some()) => {
                let tools = client.list_tools().refresh().await.ok()?;
                Some(tools.into_iter().map(|tool| tool.name).collect())
            }
            Kind::Prompts if has(|it| it.prompts.is_some()) => {
                let prompts = client.list_prompts().refresh().await.ok()?;
                Some(prompts.into_iter().map(|prompt| prompt.name).collect())
            }
            Kind::Resources if has(|it| it.resources.is_some()) => {
                let resources = client.list_resources().refresh().await.ok()?;
                Some(resources.into_iter().map(|resource| resource.uri).collect())
            }
            _ => None,
        }
    }

    fn print(&self, text: &str, mut event: Value) -> Result<(), Failure> {
        let time = utc_time(SystemTime::now());
        if self.output.is_json() {
            event["time"] = time.into();
            return Ok(self.output.json(&event)?);
        }
        Ok(self
            .output
            .line(format!("{} {text}", self.output.style(Style::Dim, time)))?)
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Tools,
    Prompts,
    Resources,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }
}

/// Returns the time of day, `12:34:56.789Z`.
fn utc_time(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let seconds = since.as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{:03}Z",
        seconds % 60,
        since.subsec_millis()
    )
}

const MAX_QUEUED: usize = 1024;
const MAX_RESOURCES: usize = 100;

#[cfg(test)]
mod tests {
    use bowline::RpcError;

    use super::*;

    #[test]
    fn times_are_of_the_day_in_utc() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(86_400_000 + 3_723_004);

        assert_eq!(utc_time(time), "01:02:03.004Z");
    }

    #[test]
    fn a_server_without_subscriptions_is_named() {
        let unknown = RpcError::new(ErrorCode::METHOD_NOT_FOUND, "Method not found");
        let failure = no_subscriptions(Error::Rpc(unknown));
        assert_eq!(failure.exit(), Exit::Rpc);
        assert!(failure.to_string().contains("does not notify of changes"));

        let other = RpcError::new(ErrorCode::INTERNAL_ERROR, "no");
        let failure = no_subscriptions(Error::Rpc(other));
        assert!(failure.to_string().starts_with("no ("), "{failure}");
    }
}
