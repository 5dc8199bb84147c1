//! `bowline bridge --config`: a bridge to the servers of a file.

use std::path::Path;

use bowline::Client;
#[cfg(unix)]
use bowline_bridge::config::ConfigChanges;
use bowline_bridge::config::{BridgeSettings, UpstreamConfig};
use bowline_bridge::credentials::{self, Credentials};
use bowline_bridge::{Bridge, BridgeConfig, Target};

use super::BoxError;
use super::options::{FrontPlan, HttpFront};
use crate::child_stderr::StderrWriter;
use crate::sign_in::{SignIn, with_browser, with_files};

/// Creates a bridge to the servers of `file`. What they print to stderr is passed on, with their names.
pub(crate) fn bridge(
    file: &Path,
    sign_in: &SignIn,
    stderr: &StderrWriter,
) -> Result<(Bridge, BridgeConfig), BoxError> {
    let config = BridgeConfig::from_file(file)?;
    if config.upstreams().next().is_none() {
        let file = file.display();
        return Err(format!("{file} has no server: add one to `mcpServers`, or enable one").into());
    }
    credentials::check_front(&config)?;
    let (credentials, stderr) = (credentials(sign_in), stderr.clone());
    let bridge = Bridge::from_config_with(&config, move |server| match server.server().url() {
        Some(_) => credentials.target(server),
        None => command_target(server, &stderr),
    })?;
    Ok((bridge, config))
}

/// Reports what is wrong with `file`, or with the variables that it names. Nothing is started, written or listened on.
pub(crate) fn check(file: &Path, sign_in: &SignIn) -> Result<(), BoxError> {
    let (_, config) = bridge(file, sign_in, &StderrWriter::start())?;
    credentials::guard(&config)?;
    let names: Vec<&str> = config.upstreams().map(UpstreamConfig::name).collect();
    println!("{} is valid: {}", file.display(), names.join(", "));
    Ok(())
}

fn command_target(config: &UpstreamConfig, stderr: &StderrWriter) -> bowline::Result<Target> {
    drop(config.server().client()?); // reports an unset variable now, not at the first request
    let (server, stderr) = (config.server().clone(), stderr.clone());
    let target = Target::new(config.name(), move |_| {
        let (name, stderr) = (server.name().to_owned(), stderr.clone());
        let command = server.to_command()?.ok_or(bowline::Error::Closed)?;
        let command = command.on_stderr(move |line| stderr.write(&format!("{name}: {line}")));
        Ok(Client::spawn(command))
    });
    Ok(match config.settings().shared {
        true => target.stateless(),
        false => target,
    })
}

/// Returns the credentials of servers. Each has its own sign-in and tokens, also if two have the same URL: they may be
/// two accounts of the user.
fn credentials(sign_in: &SignIn) -> Credentials {
    let SignIn::WhenRefused(folder) = sign_in.clone() else {
        return Credentials::new();
    };
    Credentials::new().oauth(move |oauth, server| {
        let name = server.name();
        let oauth = with_browser(oauth, &format!("the server `{name}`"));
        with_files(oauth, folder.clone()).account(name)
    })
}

/// Completes the options of the command with the settings of the file. Options come first.
pub(crate) fn front(options: FrontPlan, is_chosen: bool, settings: &BridgeSettings) -> FrontPlan {
    match options {
        FrontPlan::Http(_) if settings.stdio && !is_chosen => FrontPlan::Stdio,
        FrontPlan::Http(front) => FrontPlan::Http(complete(front, is_chosen, settings)),
        FrontPlan::Stdio => FrontPlan::Stdio,
    }
}

fn complete(mut front: HttpFront, is_chosen: bool, settings: &BridgeSettings) -> HttpFront {
    if let Some(address) = settings.http.filter(|_| !is_chosen) {
        front.address = address.to_string();
    }
    front.path.get_or_insert_with(|| settings.path.clone());
    front.cors.extend(settings.allowed_origins.iter().cloned());
    front
        .allow_hosts
        .extend(settings.allowed_hosts.iter().cloned());
    front
}

/// Reads the file again at each SIGHUP. Calls go on, and an invalid file changes nothing.
#[cfg(unix)]
pub(crate) async fn reload_at_hangup(bridge: &Bridge, file: &Path, started: &BridgeConfig) {
    use tokio::signal::unix::{SignalKind, signal};

    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return std::future::pending().await; // without a handler there is no signal to wait for
    };
    while hangup.recv().await.is_some() {
        match reload(bridge, file, started) {
            Ok((changes, unapplied)) => {
                eprintln!(
                    "bowline: read {} again: {} servers added, {} removed, {} reconnected, {} with other settings",
                    file.display(),
                    changes.added.len(),
                    changes.removed.len(),
                    changes.reconnected.len(),
                    changes.adjusted.len()
                );
                if !unapplied.is_empty() {
                    let members = unapplied.join("`, `bridge.");
                    eprintln!("bowline: start the bridge anew to apply `bridge.{members}`");
                }
            }
            Err(error) => eprintln!("bowline: goes on with the old configuration: {error}"),
        }
    }
}

#[cfg(unix)]
fn reload(
    bridge: &Bridge,
    file: &Path,
    started: &BridgeConfig,
) -> Result<(ConfigChanges, Vec<&'static str>), BoxError> {
    let config = BridgeConfig::from_file(file)?;
    credentials::check_reload(started, &config)?;
    let unapplied = config.settings().unapplied_changes(started.settings());
    Ok((bridge.reload(&config)?, unapplied))
}

#[cfg(not(unix))]
pub(crate) async fn reload_at_hangup(_: &Bridge, _: &Path, _: &BridgeConfig) {
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> BridgeSettings {
        let json = format!(r#"{{"mcpServers": {{"a": {{"command": "a"}}}}, "bridge": {json}}}"#);
        BridgeConfig::from_json(&json).unwrap().settings().clone()
    }

    fn http(address: &str) -> FrontPlan {
        FrontPlan::Http(HttpFront {
            address: address.to_owned(),
            path: None,
            cors: Vec::new(),
            allow_hosts: Vec::new(),
        })
    }

    #[test]
    fn options_come_before_the_settings_of_the_file() {
        let of_file = settings(r#"{"http": "127.0.0.1:9000", "path": "/tools"}"#);
        let address = |plan| match plan {
            FrontPlan::Http(front) => (front.address.clone(), front.path().to_owned()),
            FrontPlan::Stdio => panic!("expected HTTP"),
        };

        let default = address(front(http("127.0.0.1:8000"), false, &of_file));
        let chosen = address(front(http("127.0.0.1:7000"), true, &of_file));

        assert_eq!(default, ("127.0.0.1:9000".to_owned(), "/tools".to_owned()));
        assert_eq!(chosen, ("127.0.0.1:7000".to_owned(), "/tools".to_owned()));
        let FrontPlan::Http(mut with_path) = http("127.0.0.1:7000") else {
            panic!("expected HTTP");
        };
        with_path.path = Some("/mcp".to_owned());
        let (_, path) = address(front(FrontPlan::Http(with_path), true, &of_file));
        assert_eq!(path, "/mcp");
        let stdio = settings(r#"{"stdio": true}"#);
        assert_eq!(front(http("x"), false, &stdio), FrontPlan::Stdio);
        assert_ne!(front(http("x"), true, &stdio), FrontPlan::Stdio);
    }
}
