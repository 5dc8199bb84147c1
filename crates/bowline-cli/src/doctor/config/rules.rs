//! What is wrong with the entry of a server in a host's configuration, and how the entry should be.

use bowline::http::RedactedUrl;
use serde_json::{Map, Value, json};

use super::edit::Edit;
use crate::doctor::codes;
use crate::doctor::report::Finding;
use crate::hosts::HostKind;

/// A mistake in an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) finding: Finding,
    pub(crate) edits: Vec<Edit>,
}

/// What the rules need to know about the machine and the server.
pub(crate) struct Surroundings<'a> {
    /// Returns whether a program is in the PATH, or a path to one.
    pub(crate) is_found: &'a dyn Fn(&str) -> bool,
    /// Returns the full path of a program that is not in the PATH.
    pub(crate) find_elsewhere: &'a dyn Fn(&str) -> Option<String>,
    /// Where the URL of the server redirects to.
    pub(crate) redirect: Option<&'a str>,
}

/// Returns the mistakes of an entry, in the order in which they are mended.
pub(crate) fn problems(
    host: HostKind,
    entry: &Map<String, Value>,
    surroundings: &Surroundings<'_>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    problems.extend(disabled(entry));
    if let Some(command) = entry.get("command").and_then(Value::as_str) {
        problems.extend(command_problems(host, command, entry, surroundings));
    }
    problems.extend(url_problems(host, entry, surroundings.redirect));
    problems
}

fn disabled(entry: &Map<String, Value>) -> Option<Problem> {
    let edit = match (entry.get("disabled"), entry.get("enabled")) {
        (Some(Value::Bool(true)), _) => Edit::Set("disabled", json!(false)),
        (_, Some(Value::Bool(false))) => Edit::Set("enabled", json!(true)),
        _ => return None,
    };
    let what = "The host does not start the server, because the entry is disabled.";
    Some(Problem {
        finding: Finding::new(&codes::CONFIG_DISABLED, what),
        edits: vec![edit],
    })
}

fn command_problems(
    host: HostKind,
    command: &str,
    entry: &Map<String, Value>,
    surroundings: &Surroundings<'_>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut program = command.to_owned();
    let mut prepended = Vec::new();
    let has_variables = command.contains('$') || command.contains("{{");
    if command.contains(char::is_whitespace)
        && !has_variables
        && !(surroundings.is_found)(command)
        && let Some((first, rest)) = split_words(command)
    {
        let what = format!("`command` contains the arguments: `{command}`.");
        problems.push(Problem {
            finding: Finding::new(&codes::CONFIG_WORDS, what),
            edits: vec![
                Edit::Set("command", json!(first)),
                Edit::PrependArgs(rest.clone()),
            ],
        });
        (program, prepended) = (first, rest);
    }
    let args = entry.get("args").and_then(Value::as_array);
    let args = args.map(Vec::as_slice).unwrap_or_default();
    let is_first = |it: &&str| {
        matches!(
            *it,
            "-y" | "--yes" | "-c" | "--call" | "--no" | "--no-install"
        )
    };
    let texts = args.iter().filter_map(Value::as_str);
    let has_answer = prepended
        .iter()
        .map(String::as_str)
        .chain(texts)
        .any(|it| is_first(&it));
    if matches!(program.as_str(), "npx" | "npx.cmd") && !has_answer {
        let what = "`npx` asks whether to install the package, and a host does not answer.";
        problems.push(Problem {
            finding: Finding::new(&codes::CONFIG_NPX, what),
            edits: vec![Edit::PrependArgs(vec!["-y".to_owned()])],
        });
    }
    if !has_variables
        && !(surroundings.is_found)(&program)
        && let Some(path) = (surroundings.find_elsewhere)(&program)
    {
        let what = format!("`{program}` is not in the PATH. It is at {path}.");
        problems.push(Problem {
            finding: Finding::new(&codes::CONFIG_PATH, what),
            edits: vec![Edit::Set("command", json!(path))],
        });
    }
    if matches!(host, HostKind::Crush) && !entry.contains_key("type") {
        problems.push(missing_type(host, "stdio"));
    }
    problems
}

fn url_problems(
    host: HostKind,
    entry: &Map<String, Value>,
    redirect: Option<&str>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let url = URL_KEYS
        .iter()
        .find_map(|key| Some((*key, entry.get(*key)?.as_str()?)));
    let Some((key, url)) = url else {
        return problems;
    };
    let is_sse = url.trim_end_matches('/').ends_with("/sse");
    let wanted = match host {
        HostKind::Windsurf | HostKind::Antigravity => Some("serverUrl"),
        // Gemini CLI reads `url` as HTTP+SSE.
        HostKind::GeminiCli if is_sse => Some("url"),
        HostKind::GeminiCli => Some("httpUrl"),
        // Nothing is known about the host of a plain file, and some read several keys.
        HostKind::Plain | HostKind::Goose | HostKind::Continue | HostKind::Mcporter => None,
        _ => Some("url"),
    };
    if let Some(wanted) = wanted.filter(|wanted| *wanted != key) {
        let what = format!(
            "{} reads the URL of a server from `{wanted}`, not from `{key}`.",
            host.title()
        );
        problems.push(Problem {
            finding: Finding::new(&codes::CONFIG_URL_KEY, what),
            edits: vec![Edit::Rename(key, wanted)],
        });
    }
    let key = wanted.unwrap_or(key);
    if !entry.contains_key("type") {
        let kind = match (host, is_sse) {
            (
                HostKind::ClaudeCode
                | HostKind::VsCode
                | HostKind::VsCodeInsiders
                | HostKind::Crush,
                false,
            ) => "http",
            (
                HostKind::ClaudeCode
                | HostKind::VsCode
                | HostKind::VsCodeInsiders
                | HostKind::Crush,
                true,
            ) => "sse",
            (HostKind::Cline | HostKind::ClineCli, false) => "streamableHttp",
            (HostKind::Roo, false) => "streamable-http",
            (HostKind::Roo, true) => "sse",
            (HostKind::Opencode, _) => "remote",
            _ => "",
        };
        if !kind.is_empty() {
            problems.push(missing_type(host, kind));
        }
    }
    if let Some(to) = redirect.filter(|to| *to != url) {
        let what = format!("The URL redirects to {}.", RedactedUrl::new(to));
        problems.push(Problem {
            finding: Finding::new(&codes::CONFIG_REDIRECT, what),
            edits: vec![Edit::Set(key, json!(to))],
        });
    }
    problems
}

fn missing_type(host: HostKind, kind: &str) -> Problem {
    let what = format!(
        "The entry has no `type`, and {} then does not connect over the right transport.",
        host.title()
    );
    Problem {
        finding: Finding::new(&codes::CONFIG_TYPE, what),
        edits: vec![Edit::Set("type", json!(kind))],
    }
}

/// Splits a command line into the program and its arguments, as a shell does with quotes. `None` if a quote is open.
fn split_words(line: &str) -> Option<(String, Vec<String>)> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quote.is_some() || words.is_empty() {
        return None;
    }
    let program = words.remove(0);
    Some((program, words))
}

const URL_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes and edits of an entry. `npx` is in the PATH, and `uvx` elsewhere.
    fn judge(
        host: HostKind,
        entry: &Value,
        redirect: Option<&str>,
    ) -> Vec<(&'static str, Vec<Edit>)> {
        let surroundings = Surroundings {
            is_found: &|program| program == "npx",
            find_elsewhere: &|program| (program == "uvx").then(|| "/opt/bin/uvx".to_owned()),
            redirect,
        };
        let problems = problems(host, entry.as_object().unwrap(), &surroundings);
        problems
            .into_iter()
            .map(|it| (it.finding.code.name, it.edits))
            .collect()
    }

    #[test]
    fn healthy_entries_have_no_problems() {
        for (host, entry) in [
            (
                HostKind::ClaudeDesktop,
                json!({"command": "npx", "args": ["-y", "server"]}),
            ),
            (
                HostKind::ClaudeCode,
                json!({"type": "http", "url": "https://a.example/mcp"}),
            ),
            (HostKind::Cursor, json!({"url": "https://a.example/mcp"})),
            (
                HostKind::Windsurf,
                json!({"serverUrl": "https://a.example/mcp", "disabled": false}),
            ),
            (
                HostKind::GeminiCli,
                json!({"httpUrl": "https://a.example/mcp"}),
            ),
            (HostKind::GeminiCli, json!({"url": "https://a.example/sse"})),
            (
                HostKind::Plain,
                json!({"serverUrl": "https://a.example/mcp"}),
            ),
            (HostKind::Cursor, json!({"command": "${TOOLS}/my server"})),
        ] {
            assert_eq!(judge(host, &entry, None), [], "{entry}");
        }
    }

    #[test]
    fn arguments_in_the_command_are_separated() {
        let entry = json!({"command": "npx -y 'my server' --x"});

        let found = judge(HostKind::ClaudeDesktop, &entry, None);

        let rest = ["-y", "my server", "--x"].map(str::to_owned).to_vec();
        let edits = vec![Edit::Set("command", json!("npx")), Edit::PrependArgs(rest)];
        assert_eq!(found, [("config-words", edits)]);
        assert_eq!(split_words("a 'b"), None);
    }

    #[test]
    fn a_program_that_is_elsewhere_gets_its_path_and_npx_gets_an_answer() {
        let uvx = judge(
            HostKind::Cursor,
            &json!({"command": "uvx", "args": ["x"]}),
            None,
        );
        let npx = judge(
            HostKind::Cursor,
            &json!({"command": "npx", "args": ["x"]}),
            None,
        );

        assert_eq!(
            uvx,
            [(
                "config-path",
                vec![Edit::Set("command", json!("/opt/bin/uvx"))]
            )]
        );
        assert_eq!(
            npx,
            [("config-npx", vec![Edit::PrependArgs(vec!["-y".into()])])]
        );
    }

    #[test]
    fn each_host_gets_its_own_key_and_type() {
        let url = json!({"url": "https://a.example/mcp"});
        let rename = |to| vec![Edit::Rename("url", to)];
        let of_type = |kind: &str| vec![Edit::Set("type", json!(kind))];

        for (host, code, edits) in [
            (HostKind::Windsurf, "config-url-key", rename("serverUrl")),
            (HostKind::GeminiCli, "config-url-key", rename("httpUrl")),
            (HostKind::ClaudeCode, "config-type", of_type("http")),
            (HostKind::VsCode, "config-type", of_type("http")),
            (HostKind::Cline, "config-type", of_type("streamableHttp")),
            (HostKind::Opencode, "config-type", of_type("remote")),
        ] {
            assert_eq!(judge(host, &url, None), [(code, edits)]);
        }
    }

    #[test]
    fn redirects_and_disabled_entries_are_found() {
        let entry = json!({"url": "https://a.example/mcp/", "disabled": true});

        let found = judge(HostKind::Cursor, &entry, Some("https://a.example/mcp"));

        assert_eq!(
            found,
            [
                ("config-disabled", vec![Edit::Set("disabled", json!(false))]),
                (
                    "config-redirect",
                    vec![Edit::Set("url", json!("https://a.example/mcp"))]
                ),
            ]
        );
    }
}
