//! [`ConfiguredServer`], a server of a host's configuration, and how one is read from its entry.

use std::path::PathBuf;

use super::node::{Node, NodeValue};
use super::places::{HostKind, Scope};
use crate::values::NamedValue;

/// A server that a host is configured to use. `Debug` omits the values of variables and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfiguredServer {
    pub(crate) host: HostKind,
    pub(crate) scope: Scope,
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    /// The directory of the project that the server is for.
    pub(crate) project: Option<PathBuf>,
    /// Whether the server is for a project that the current directory does not belong to.
    pub(crate) is_elsewhere: bool,
    pub(crate) is_disabled: bool,
    pub(crate) launch: Launch,
}

/// How a server is reached, as the file has it: variables are not replaced yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    Command {
        command: String,
        args: Vec<String>,
        env: Vec<NamedValue>,
        /// Variables of the host's own environment that are passed on.
        passed_env: Vec<String>,
        cwd: Option<String>,
    },
    Url {
        url: String,
        headers: Vec<NamedValue>,
    },
}

/// What the entry of a server means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) launch: Launch,
    pub(super) is_disabled: bool,
}

/// Reads the entry of a server. The names of members are those of all hosts; no name has two meanings.
///
/// Returns `None` for a server that is a part of the host or of its extensions, and that nothing else can start.
///
/// # Errors
///
/// With the line and the mistake.
pub(super) fn read_entry(node: &Node) -> Result<Option<Entry>, (usize, String)> {
    let wrong = |what: &str| (node.line, what.to_owned());
    if node.members().is_none() {
        return Err(wrong("expected an object"));
    }
    let kind = node.get("type").and_then(Node::as_text);
    let is_internal = matches!(
        kind,
        Some("builtin" | "platform" | "frontend" | "inline_python")
    );
    let is_extension = node.get("source").and_then(Node::as_text) == Some("extension")
        || (node.get("settings").is_some()
            && node.get("command").is_none()
            && node.get("url").is_none());
    if is_internal || is_extension {
        return Ok(None);
    }
    // Continue once nested them.
    let node = node
        .get("transport")
        .filter(|it| it.members().is_some())
        .unwrap_or(node);
    let is_disabled = node.get("disabled").and_then(Node::as_bool) == Some(true)
        || node.get("enabled").and_then(Node::as_bool) == Some(false);
    let url = text_of(node, &["url", "serverUrl", "httpUrl", "uri", "baseUrl"])?;
    let command = first(node, &["command", "cmd"]);
    let launch = match (command, url) {
        (Some(_), Some(_)) => return Err(wrong("has both a command and a URL")),
        (None, None) => return Err(wrong("expected a `command` or a `url`")),
        (None, Some(url)) => Launch::Url {
            url,
            headers: headers(node)?,
        },
        (Some(command), None) => command_launch(node, command)?,
    };
    Ok(Some(Entry {
        launch,
        is_disabled,
    }))
}

fn command_launch(node: &Node, command: &Node) -> Result<Launch, (usize, String)> {
    let mut args = texts(node, "args")?;
    let mut env = named_values(node, &["env", "envs", "environment"])?;
    let command = match &command.value {
        NodeValue::Text(text) => text.clone(),
        // opencode: the program and its arguments.
        NodeValue::List(words) => {
            let words = words
                .iter()
                .map(|word| word.to_text().ok_or_else(|| not_texts(word, "command")));
            let mut words = words.collect::<Result<Vec<_>, _>>()?;
            if words.is_empty() {
                return Err((command.line, "`command` is empty".to_owned()));
            }
            let program = words.remove(0);
            words.append(&mut args);
            args = words;
            program
        }
        // Zed, before 2025.
        NodeValue::Map(_) => {
            args.extend(texts(command, "args")?);
            env.extend(named_values(command, &["env"])?);
            let path = text_of(command, &["path"])?;
            path.ok_or_else(|| (command.line, "expected a `path` in `command`".to_owned()))?
        }
        _ => return Err((command.line, "`command` must be a string".to_owned())),
    };
    let passed_env = texts_leniently(node, "env_vars").chain(texts_leniently(node, "env_keys"));
    Ok(Launch::Command {
        command,
        args,
        env,
        passed_env: passed_env.collect(),
        cwd: text_of(node, &["cwd", "workingDirectory"])?,
    })
}

fn headers(node: &Node) -> Result<Vec<NamedValue>, (usize, String)> {
    let mut headers = named_values(node, &["headers", "http_headers"])?;
    if let Some(options) = node.get("requestOptions") {
        headers.extend(named_values(options, &["headers"])?);
    }
    // Codex: names of variables instead of values.
    for NamedValue { name, value } in named_values(node, &["env_http_headers"])? {
        let value = format!("${{{value}}}");
        headers.push(NamedValue { name, value });
    }
    if let Some(variable) = text_of(node, &["bearer_token_env_var"])? {
        let (name, value) = (
            "Authorization".to_owned(),
            format!("Bearer ${{{variable}}}"),
        );
        headers.push(NamedValue { name, value });
    }
    Ok(headers)
}

fn first<'a>(node: &'a Node, keys: &[&str]) -> Option<&'a Node> {
    keys.iter().find_map(|key| node.get(key))
}

fn text_of(node: &Node, keys: &[&str]) -> Result<Option<String>, (usize, String)> {
    for key in keys {
        match node.get(key) {
            None => {}
            Some(found) => match found.as_text() {
                Some(text) => return Ok(Some(text.to_owned())),
                None => return Err((found.line, format!("`{key}` must be a string"))),
            },
        }
    }
    Ok(None)
}

fn texts(node: &Node, key: &str) -> Result<Vec<String>, (usize, String)> {
    let Some(found) = node.get(key) else {
        return Ok(Vec::new());
    };
    let items = found.items().ok_or_else(|| not_texts(found, key))?;
    let texts = items
        .iter()
        .map(|item| item.to_text().ok_or_else(|| not_texts(item, key)));
    texts.collect()
}

fn texts_leniently(node: &Node, key: &str) -> impl Iterator<Item = String> {
    let items = node.get(key).and_then(Node::items).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.as_text().map(str::to_owned))
}

fn not_texts(node: &Node, key: &str) -> (usize, String) {
    (node.line, format!("`{key}` must be a list of strings"))
}

fn named_values(node: &Node, keys: &[&str]) -> Result<Vec<NamedValue>, (usize, String)> {
    let Some((key, found)) = keys.iter().find_map(|key| Some((key, node.get(key)?))) else {
        return Ok(Vec::new());
    };
    let members = found.members();
    let members = members.ok_or_else(|| (found.line, format!("`{key}` must be an object")))?;
    let named = members
        .iter()
        .filter(|(_, value)| value.value != NodeValue::Null);
    let named = named.map(|(name, value)| match value.to_text() {
        Some(value) => Ok(NamedValue {
            name: name.clone(),
            value,
        }),
        None => Err((value.line, format!("`{key}.{name}` must be a string"))),
    });
    named.collect()
}
