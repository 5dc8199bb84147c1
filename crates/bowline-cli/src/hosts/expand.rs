//! Makes a [`Target`] of a [`ConfiguredServer`]: replaces the variables in its members.

use std::path::PathBuf;

use bowline::client::ServerConfig;

use super::machine::Machine;
use super::places::HostKind;
use super::server::{ConfiguredServer, Launch};
use crate::sign_in::SignIn;
use crate::target::{CommandTarget, Target, UrlTarget};
use crate::values::NamedValue;

impl ConfiguredServer {
    /// Returns the server as a target, with the variables of `machine` in the place of their names.
    ///
    /// # Errors
    ///
    /// If a variable is not set, or the host would ask the user, or run a shell, for a value.
    pub(crate) fn target(&self, machine: &Machine) -> Result<Target, String> {
        let expand = |what: &str, text: &str| {
            self.expand(text, machine)
                .map_err(|why| format!("`{what}`: {why}"))
        };
        let expand_all = |what: &str, values: &[NamedValue]| {
            let values = values.iter().map(|NamedValue { name, value }| {
                let value = expand(&format!("{what}.{name}"), value)?;
                Ok(NamedValue {
                    name: name.clone(),
                    value,
                })
            });
            values.collect::<Result<Vec<_>, String>>()
        };
        Ok(match &self.launch {
            Launch::Url { url, headers } => Target::Url(UrlTarget {
                url: expand("url", url)?,
                headers: expand_all("headers", headers)?,
                sign_in: SignIn::WhenRefused(None),
            }),
            Launch::Command {
                command,
                args,
                env,
                passed_env,
                cwd,
            } => {
                let args = args.iter().map(|arg| expand("args", arg).map(Into::into));
                let mut env = expand_all("env", env)?;
                for name in passed_env {
                    if let Some(value) = machine.variable(name) {
                        let (name, value) = (name.clone(), value.to_owned());
                        env.push(NamedValue { name, value });
                    }
                }
                let cwd = cwd.as_ref().map(|cwd| expand("cwd", cwd)).transpose()?;
                Target::Command(CommandTarget {
                    program: in_home(&expand("command", command)?, machine).into(),
                    args: args.collect::<Result<_, String>>()?,
                    env,
                    inherit_env: false,
                    cwd: self.directory(cwd.as_deref(), machine),
                })
            }
        })
    }

    /// Returns the directory that the command is started in: relative to the project, if there is one.
    fn directory(&self, cwd: Option<&str>, machine: &Machine) -> Option<PathBuf> {
        let cwd = cwd.map(|cwd| PathBuf::from(in_home(cwd, machine)));
        match (&self.project, cwd) {
            (Some(project), Some(cwd)) => Some(project.join(cwd)),
            (Some(project), None) => Some(project.clone()),
            (None, cwd) => cwd,
        }
    }

    fn expand(&self, text: &str, machine: &Machine) -> Result<String, String> {
        if text.contains("${input:") {
            return Err(
                "the host asks the user for `${input:…}`; pass the value with --env or --header"
                    .into(),
            );
        }
        if self.host == HostKind::Crush && text.contains("$(") {
            return Err(
                "the host runs a shell for `$(…)`; pass the value with --env or --header".into(),
            );
        }
        let text = match self.host {
            HostKind::Opencode => opencode_variables(text),
            HostKind::Crush | HostKind::GeminiCli => dollar_variables(text),
            _ => text.to_owned(),
        };
        let variable = |name: &str| self.variable(name, machine);
        let expanded = ServerConfig::expand(&text, variable);
        match expanded {
            Ok(expanded) => Ok(expanded),
            // These hosts do not replace anything.
            Err(_)
                if matches!(
                    self.host,
                    HostKind::ClaudeDesktop | HostKind::Goose | HostKind::LmStudio
                ) =>
            {
                Ok(text)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the value of an environment variable, or of a variable that editors define.
    fn variable(&self, name: &str, machine: &Machine) -> Option<String> {
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        match name {
            "workspaceFolder" => Some(
                self.project
                    .as_ref()
                    .map_or_else(|| path(&machine.cwd), path),
            ),
            "userHome" => machine.home.as_ref().map(path),
            _ => machine.variable(name).map(str::to_owned),
        }
    }
}

/// Replaces `~` at the beginning of a path.
fn in_home(path: &str, machine: &Machine) -> String {
    let rest = path.strip_prefix("~/").or_else(|| path.strip_prefix("~\\"));
    match (rest, &machine.home) {
        (Some(rest), Some(home)) => home.join(rest).to_string_lossy().into_owned(),
        _ => path.to_owned(),
    }
}

/// Rewrites `{env:NAME}` as `${NAME}`. opencode replaces a variable that is not set by nothing.
fn opencode_variables(text: &str) -> String {
    let mut rewritten = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{env:") {
        let Some((name, after)) = after.split_once('}') else {
            break;
        };
        rewritten.push_str(&format!("{before}${{{name}:-}}"));
        rest = after;
    }
    rewritten + rest
}

/// Rewrites `$NAME` as `${NAME:-}`: these hosts replace a variable that is not set by nothing.
fn dollar_variables(text: &str) -> String {
    let mut rewritten = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        rewritten.push_str(before);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        match name.starts_with(|c: char| !c.is_ascii_digit()) {
            true => rewritten.push_str(&format!("${{{name}:-}}")),
            false => rewritten.push_str(&format!("${name}")),
        }
        rest = after;
    }
    rewritten + rest
}
