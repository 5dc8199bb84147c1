//! [`ServersConfig`], the `mcpServers` of a host's configuration file, as clients.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use bowline_core::shortened;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::{Client, ClientBuilder, http as client_http};
use crate::wire::Command;
use crate::{Error, Result};

/// The servers of a configuration file, as MCP hosts write them.
///
/// ```json
/// {
///   "mcpServers": {
///     "files": {"command": "npx", "args": ["-y", "files-server"], "env": {"ROOT": "${HOME}/notes"}, "cwd": "/tmp"},
///     "search": {"url": "https://search.example/mcp", "headers": {"Authorization": "Bearer ${SEARCH_TOKEN}"}}
///   }
/// }
/// ```
///
/// The key `servers` is accepted too, and `serverUrl` and `httpUrl` for `url`. A `type`, if there is one, must be
/// `stdio`, or `http`, `streamable-http`, `streamableHttp` or `sse`; the client finds out by itself which of the latter
/// the server uses. Unknown members are ignored.
///
/// `${NAME}` and `${env:NAME}` in strings are replaced by environment variables, and `${NAME:-default}` by the default
/// if the variable is not set.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> bowline::Result<()> {
/// use bowline::client::ServersConfig;
///
/// let config = ServersConfig::from_file(".mcp.json")?;
/// for server in config.iter().filter(|server| !server.is_disabled()) {
///     let client = server.client()?.client_info("my-host", "1.0.0").await?;
///     println!("{}: {} tools", server.name(), client.list_tools().await?.len());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ServersConfig {
    servers: BTreeMap<String, ServerConfig>,
}

/// One server of a [`ServersConfig`]. `Debug` omits arguments, variables, URL and headers, which may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerConfig {
    name: String,
    target: ServerTarget,
    is_disabled: bool,
    /// Whether variables are replaced already. Values are never expanded twice.
    is_expanded: bool,
}

#[derive(Clone, PartialEq, Eq)]
enum ServerTarget {
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: Option<String>,
    },
    Http {
        url: String,
        headers: BTreeMap<String, String>,
    },
}

impl ServersConfig {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the file cannot be read, or as for [`ServersConfig::from_json`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let (read, path) = (std::fs::read_to_string(&path), path.as_ref().display());
        let text =
            read.map_err(|error| Error::misuse(format!("failed to read {path}: {error}")))?;
        Self::from_json(&text).map_err(|error| Error::misuse(format!("{path}: {error}")))
    }

    /// Parses the text of a configuration file. Variables are not replaced yet.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] that names the server and the member.
    pub fn from_json(text: &str) -> Result<Self> {
        let file: Value = serde_json::from_str(text)
            .map_err(|error| Error::misuse(format!("expected JSON: {error}")))?;
        let servers = file.get("mcpServers").or_else(|| file.get("servers"));
        let Some(Value::Object(servers)) = servers else {
            return Err(Error::misuse("expected an object `mcpServers`"));
        };
        let read = |(name, server): (&String, &Value)| {
            let server = ServerConfig::read(name, server).map_err(|what| invalid(name, &what))?;
            Ok((name.clone(), server))
        };
        let servers = servers.iter().map(read).collect::<Result<_>>()?;
        Ok(Self { servers })
    }

    /// Returns the servers, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &ServerConfig> {
        self.servers.values()
    }

    /// Returns the server with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ServerConfig> {
        self.servers.get(name)
    }
}

impl ServerConfig {
    /// Returns the name of the server in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the file disables the server (`"disabled": true`, or `"enabled": false`).
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// Returns the command of a server that is started as a child process, as it is written in the file.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::client::ServersConfig;
    ///
    /// let text = r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "${PACKAGE}"]}}}"#;
    /// let config = ServersConfig::from_json(text)?;
    /// let files = config.get("files").unwrap();
    /// assert_eq!((files.command(), files.url()), (Some("npx"), None));
    /// assert_eq!(files.args(), ["-y", "${PACKAGE}"]);
    /// let expanded = files.expanded_with(|_| Some("files-server".to_owned()))?;
    /// assert_eq!(expanded.args(), ["-y", "files-server"]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn command(&self) -> Option<&str> {
        match &self.target {
            ServerTarget::Stdio { command, .. } => Some(command),
            ServerTarget::Http { .. } => None,
        }
    }

    /// Returns the arguments of the command.
    #[must_use]
    pub fn args(&self) -> &[String] {
        match &self.target {
            ServerTarget::Stdio { args, .. } => args,
            ServerTarget::Http { .. } => &[],
        }
    }

    /// Returns the environment variables that are set for the command, ordered by name.
    pub fn env(&self) -> impl Iterator<Item = (&str, &str)> {
        let env = match &self.target {
            ServerTarget::Stdio { env, .. } => Some(env),
            ServerTarget::Http { .. } => None,
        };
        env.into_iter().flatten().map(text_pair)
    }

    /// Returns the directory that the command is started in, if it is given.
    #[must_use]
    pub fn cwd(&self) -> Option<&str> {
        match &self.target {
            ServerTarget::Stdio { cwd, .. } => cwd.as_deref(),
            ServerTarget::Http { .. } => None,
        }
    }

    /// Returns the URL of a server that is reached over HTTP, as it is written in the file.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match &self.target {
            ServerTarget::Stdio { .. } => None,
            ServerTarget::Http { url, .. } => Some(url),
        }
    }

    /// Returns the headers that are added to requests, ordered by name.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = match &self.target {
            ServerTarget::Stdio { .. } => None,
            ServerTarget::Http { headers, .. } => Some(headers),
        };
        headers.into_iter().flatten().map(text_pair)
    }

    /// Returns a copy in which variables are replaced, by the value that `variable` returns for a name.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] that names the server and the member, if a variable has neither a value nor a default.
    pub fn expanded_with(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        if self.is_expanded {
            return Ok(self.clone());
        }
        let expand = |member: &str, text: &str| {
            expand(text, &variable)
                .map_err(|what| invalid(&self.name, &format!("`{member}`: {what}")))
        };
        let expand_all = |member: &str, map: &BTreeMap<String, String>| {
            let expand = |(name, value): (&String, &String)| {
                let value = expand(&format!("{member}.{name}"), value)?;
                Ok((name.clone(), value))
            };
            map.iter().map(expand).collect::<Result<_>>()
        };
        let target = match &self.target {
            ServerTarget::Stdio {
                command,
                args,
                env,
                cwd,
            } => ServerTarget::Stdio {
                command: expand("command", command)?,
                args: (args.iter().map(|arg| expand("args", arg))).collect::<Result<_>>()?,
                env: expand_all("env", env)?,
                cwd: cwd.as_ref().map(|cwd| expand("cwd", cwd)).transpose()?,
            },
            ServerTarget::Http { url, headers } => ServerTarget::Http {
                url: expand("url", url)?,
                headers: expand_all("headers", headers)?,
            },
        };
        let name = self.name.clone();
        Ok(Self {
            name,
            target,
            is_disabled: self.is_disabled,
            is_expanded: true,
        })
    }

    /// Replaces `${NAME}`, `${env:NAME}` and `${NAME:-default}` in a text, as in the members of a server.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if a variable has neither a value nor a default.
    pub fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String> {
        expand(text, variable).map_err(Error::misuse)
    }

    /// Returns the builder of a client for this server. Await it to connect.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] that names the server and the member, if an environment variable is not set, or a header is
    /// invalid.
    pub fn client(&self) -> Result<ClientBuilder> {
        self.client_with(|name| std::env::var(name).ok())
    }

    /// Returns the command that starts this server, to add to it; `None` for a server at a URL.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] that names the server and the member, if an environment variable is not set.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::client::ServersConfig;
    ///
    /// let config = ServersConfig::from_json(r#"{"mcpServers": {"files": {"command": "files-server"}}}"#)?;
    /// let command = config.get("files").unwrap().to_command()?.unwrap();
    /// let command = command.on_stderr(|line| eprintln!("files: {line}"));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    pub fn to_command(&self) -> Result<Option<Command>> {
        let variable = |name: &str| std::env::var(name).ok();
        Ok(match self.expanded_with(variable)?.target {
            ServerTarget::Stdio {
                command,
                args,
                env,
                cwd,
            } => Some(command_of(command, args, env, cwd)),
            ServerTarget::Http { .. } => None,
        })
    }

    /// `variable` returns the value of an environment variable.
    fn client_with(&self, variable: impl Fn(&str) -> Option<String>) -> Result<ClientBuilder> {
        match self.expanded_with(variable)?.target {
            ServerTarget::Stdio {
                command,
                args,
                env,
                cwd,
            } => Ok(Client::spawn(command_of(command, args, env, cwd))),
            ServerTarget::Http { url, headers } => {
                let read = |(name, value): (&String, &String)| {
                    header(name, value).ok_or_else(|| {
                        let what = format!("`headers.{name}`: not a valid header");
                        invalid(&self.name, &what)
                    })
                };
                let headers = headers.iter().map(read).collect::<Result<Vec<_>>>()?;
                Ok(client_http::connect_with_headers(&url, headers))
            }
        }
    }

    fn read(name: &str, server: &Value) -> Result<Self, String> {
        let server = server.as_object().ok_or("expected an object")?;
        let command = string(server, "command")?;
        let urls = ["url", "serverUrl", "httpUrl"];
        let urls = urls.map(|member| string(server, member));
        let url = urls.into_iter().find_map(Result::transpose).transpose()?;
        let target = match (string(server, "type")?.as_deref(), command, url) {
            (Some("stdio") | None, Some(command), None) => ServerTarget::Stdio {
                command,
                args: strings(server, "args")?,
                env: string_map(server, "env")?,
                cwd: string(server, "cwd")?,
            },
            (
                Some("http" | "streamable-http" | "streamableHttp" | "sse") | None,
                None,
                Some(url),
            ) => ServerTarget::Http {
                url,
                headers: string_map(server, "headers")?,
            },
            (None, None, None) => return Err("expected a `command` or a `url`".into()),
            (None, Some(_), Some(_)) => return Err("has both a `command` and a `url`".into()),
            (Some(kind), ..) => {
                let kind = shortened(kind);
                return Err(format!(
                    "`type` is `{kind}`; expected `stdio` with a `command`, or `http` or `sse` with a `url`"
                ));
            }
        };
        let is = |member, value| server.get(member) == Some(&Value::Bool(value));
        let is_disabled = is("disabled", true) || is("enabled", false);
        let name = name.to_owned();
        Ok(Self {
            name,
            target,
            is_disabled,
            is_expanded: false,
        })
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ServerConfig");
        debug.field("name", &self.name);
        match &self.target {
            ServerTarget::Stdio { command, .. } => debug.field("command", command),
            ServerTarget::Http { .. } => debug.field("type", &"http"),
        };
        debug.finish_non_exhaustive()
    }
}

fn command_of(
    command: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
) -> Command {
    let mut started = Command::new(command).args(args);
    for (name, value) in env {
        started = started.env(name, value);
    }
    match cwd {
        Some(cwd) => started.current_dir(cwd),
        None => started,
    }
}

fn text_pair<'a>((name, value): (&'a String, &'a String)) -> (&'a str, &'a str) {
    (name, value)
}

fn invalid(server: &str, what: &str) -> Error {
    Error::misuse(format!("server `{}`: {what}", shortened(server)))
}

fn string(object: &Map<String, Value>, member: &str) -> Result<Option<String>, String> {
    match object.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{member}` must be a string")),
    }
}

fn strings(object: &Map<String, Value>, member: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("`{member}` must be an array of strings");
    match object.get(member) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => (items.iter())
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}

/// Numbers and booleans count as strings, because people write `"PORT": 80`.
fn string_map(
    object: &Map<String, Value>,
    member: &str,
) -> Result<BTreeMap<String, String>, String> {
    match object.get(member) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(items)) => (items.iter())
            .map(|(name, value)| match value {
                Value::String(text) => Ok((name.clone(), text.clone())),
                Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
                _ => Err(format!("`{member}.{}` must be a string", shortened(name))),
            })
            .collect(),
        Some(_) => Err(format!("`{member}` must be an object")),
    }
}

/// Returns `None` if the name or the value is invalid. The value may be a secret.
fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let name = name.parse().ok()?;
    let mut value: HeaderValue = value.parse().ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// Replaces `${NAME}`, `${env:NAME}` and `${NAME:-default}`. Values are not expanded again.
fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((reference, after)) = after.split_once('}') else {
            break; // not closed: literal text
        };
        let reference = reference.strip_prefix("env:").unwrap_or(reference);
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (reference, None),
        };
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|it| it.is_ascii_alphanumeric() || it == '_')
        };
        if !is_name(name) {
            return Err(format!("`${{{}}}` is not supported", shortened(reference)));
        }
        let value = variable(name).or(default);
        let value = value
            .ok_or_else(|| format!("the environment variable `{}` is not set", shortened(name)))?;
        expanded.push_str(before);
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        (name == "TOKEN").then(|| "${TOKEN} s3cret".to_owned())
    }

    fn error_of(server: &str) -> String {
        let text = format!(r#"{{"mcpServers": {{"one": {server}}}}}"#);
        let config = ServersConfig::from_json(&text);
        let client = config.and_then(|config| config.get("one").unwrap().client_with(variable));
        client.unwrap_err().to_string()
    }

    #[test]
    fn variables_are_replaced_once() {
        let expand = |text| expand(text, variable);

        assert_eq!(expand("a ${TOKEN} b").unwrap(), "a ${TOKEN} s3cret b");
        assert_eq!(expand("${env:TOKEN}").unwrap(), "${TOKEN} s3cret");
        assert_eq!(expand("${NONE:-x:-y}/${NONE:-}").unwrap(), "x:-y/");
        assert_eq!(expand("$TOKEN ${TOKEN").unwrap(), "$TOKEN ${TOKEN");
        assert_eq!(
            expand("${NONE}").unwrap_err(),
            "the environment variable `NONE` is not set"
        );
        assert_eq!(
            expand("${input:key}").unwrap_err(),
            "`${input:key}` is not supported"
        );
    }

    #[test]
    fn the_forms_that_hosts_write_are_read() {
        let config = ServersConfig::from_json(
            r#"{"mcpServers": {
                "b": {"type": "stdio", "command": "npx", "args": ["-y"], "env": {"PORT": 80}, "cwd": null, "x": [1]},
                "a": {"type": "streamableHttp", "url": "https://a.example/${TOKEN:-mcp}", "disabled": true},
                "c": {"serverUrl": "http://localhost:1/sse", "headers": {"X-Key": "${TOKEN}"}}
            }, "other": 1}"#,
        );

        let config = config.unwrap();

        let names: Vec<_> = config.iter().map(ServerConfig::name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(config.get("a").unwrap().is_disabled() && !config.get("b").unwrap().is_disabled());
        assert!(
            config
                .iter()
                .all(|server| server.client_with(variable).is_ok())
        );
        assert!(ServersConfig::from_json(r#"{"servers": {}}"#).is_ok());
    }

    #[test]
    fn errors_name_the_server_and_the_member() {
        assert_eq!(error_of("1"), "server `one`: expected an object");
        assert_eq!(
            error_of("{}"),
            "server `one`: expected a `command` or a `url`"
        );
        assert_eq!(
            error_of(r#"{"command": 1}"#),
            "server `one`: `command` must be a string"
        );
        assert!(
            error_of(r#"{"command": "a", "url": "b"}"#)
                .ends_with("has both a `command` and a `url`")
        );
        assert!(
            error_of(r#"{"command": "a", "args": "b"}"#)
                .ends_with("`args` must be an array of strings")
        );
        assert!(
            error_of(r#"{"command": "a", "env": {"B": []}}"#).ends_with("`env.B` must be a string")
        );
        assert!(error_of(r#"{"type": "ws", "url": "b"}"#).contains("`type` is `ws`"));
        assert_eq!(
            error_of(r#"{"command": "a", "env": {"B": "${NONE}"}}"#),
            "server `one`: `env.B`: the environment variable `NONE` is not set"
        );
        let header = error_of(r#"{"url": "http://a", "headers": {"B": "s3cret\n"}}"#);
        assert_eq!(header, "server `one`: `headers.B`: not a valid header");
        assert!(
            ServersConfig::from_json("[]")
                .unwrap_err()
                .to_string()
                .contains("`mcpServers`")
        );
        assert!(
            ServersConfig::from_file("/no/such/file")
                .unwrap_err()
                .to_string()
                .contains("/no/such/file")
        );
    }

    #[test]
    fn members_are_returned_as_written_and_expanded_once() {
        let config = ServersConfig::from_json(
            r#"{"mcpServers": {
                "a": {"command": "${TOKEN}", "args": ["${TOKEN}"], "env": {"A": "${TOKEN}"}, "cwd": "/${TOKEN}"},
                "b": {"url": "http://b/${TOKEN}", "headers": {"X-Key": "${TOKEN}"}}
            }}"#,
        );
        let config = config.unwrap();
        let (a, b) = (config.get("a").unwrap(), config.get("b").unwrap());

        assert_eq!(
            (a.command(), a.cwd()),
            (Some("${TOKEN}"), Some("/${TOKEN}"))
        );
        assert_eq!((a.url(), a.headers().count()), (None, 0));
        assert_eq!(b.url(), Some("http://b/${TOKEN}"));
        assert_eq!((b.command(), b.args().len(), b.env().count()), (None, 0, 0));

        let value = "${TOKEN} s3cret";
        let a = a.expanded_with(variable).unwrap();
        let a = a.expanded_with(variable).unwrap();
        assert_eq!(
            (a.command(), a.args()),
            (Some(value), &[value.to_owned()][..])
        );
        assert_eq!(a.env().collect::<Vec<_>>(), [("A", value)]);
        assert_eq!(a.cwd(), Some("/${TOKEN} s3cret"));
        let b = b.expanded_with(variable).unwrap();
        assert_eq!(b.url(), Some("http://b/${TOKEN} s3cret"));
        assert_eq!(b.headers().collect::<Vec<_>>(), [("X-Key", value)]);
    }

    #[test]
    fn debug_omits_secrets() {
        let config = ServersConfig::from_json(
            r#"{"mcpServers": {
                "a": {"command": "npx", "args": ["s3cret"], "env": {"KEY": "s3cret"}},
                "b": {"url": "https://s3cret@b.example/", "headers": {"X-Key": "s3cret"}}
            }}"#,
        );

        let text = format!("{:?}", config.unwrap());

        assert!(text.contains("npx") && !text.contains("s3cret"), "{text}");
    }
}
