//! `bowline servers`: lists the servers that the hosts on this machine are configured to use.

mod check;

use std::path::Path;

use bowline::http::RedactedUrl;
use clap::Args;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::hosts::{self, ConfiguredServer, Discovered, DiskFiles, Launch, Machine, Scope};
use crate::output::{Output, OutputOptions, Style, fit, visible_line};
use crate::redact::redact_words;
use check::{CheckOptions, Checked};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ServersOptions {
    /// Show only servers whose name or host contains this text.
    filter: Option<String>,
    /// Show the servers of other projects too (Claude Code keeps them in one file).
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    check: CheckOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Lists the servers.
///
/// # Errors
///
/// If stdout is closed.
pub(crate) fn run(options: &ServersOptions) -> Result<Exit, Failure> {
    let output = options.output.output();
    let machine = Machine::current();
    let mut discovered = hosts::discover(&machine, &DiskFiles);
    discovered.servers.retain(|server| options.shows(server));
    for problem in &discovered.problems {
        let problem = visible_line(&problem.to_string()).into_owned();
        eprintln!(
            "{} {problem}",
            output.style_stderr(Style::Yellow, "warning:")
        );
    }
    let checked = match options.check.check {
        true => Some(check::run(
            &discovered.servers,
            &machine,
            &options.check,
            output,
        )?),
        false => None,
    };
    print(&discovered, checked.as_deref(), &machine, output)?;
    let has_failed = checked.is_some_and(|checked| checked.iter().any(Checked::has_failed));
    Ok(match has_failed {
        true => Exit::Findings,
        false => Exit::Success,
    })
}

impl ServersOptions {
    fn shows(&self, server: &ConfiguredServer) -> bool {
        let matches = self.filter.as_ref().is_none_or(|filter| {
            let filter = filter.to_lowercase();
            let texts = [&server.name, server.host.id(), server.host.title()];
            texts
                .iter()
                .any(|text| text.to_lowercase().contains(&filter))
        });
        matches && (self.all || !server.is_elsewhere)
    }
}

fn print(
    discovered: &Discovered,
    checked: Option<&[Checked]>,
    machine: &Machine,
    output: Output,
) -> Result<(), Failure> {
    let result_of = |index: usize| checked.and_then(|checked| checked.get(index));
    if output.is_json() {
        let servers = discovered.servers.iter().enumerate();
        let servers: Vec<_> = servers
            .map(|(index, server)| to_json(server, result_of(index)))
            .collect();
        let problems = discovered.problems.iter().map(|problem| {
            let file = problem.file.to_string_lossy();
            json!({"file": file, "line": problem.line, "message": problem.message})
        });
        let problems: Vec<_> = problems.collect();
        output.json(&json!({"servers": servers, "problems": problems}))?;
        return Ok(());
    }
    if discovered.servers.is_empty() {
        return Ok(output.line(match discovered.files.len() {
            0 => "No configuration file of a host was found.".to_owned(),
            files => format!("No such servers are configured ({files} files were read)."),
        })?);
    }
    let mut heading = None;
    for (index, server) in discovered.servers.iter().enumerate() {
        if heading != Some((server.host, &server.file, &server.project)) {
            if heading.is_some() {
                output.line("")?;
            }
            output.line(title(server, machine, output))?;
            heading = Some((server.host, &server.file, &server.project));
        }
        for line in describe(server, result_of(index), output) {
            output.line(line)?;
        }
    }
    Ok(())
}

/// Returns the heading of the servers of one file.
fn title(server: &ConfiguredServer, machine: &Machine, output: Output) -> String {
    let host = output.style(Style::Bold, server.host.title());
    let file = fit(
        &visible_line(&short_path(&server.file, machine)),
        output.width.saturating_sub(server.host.title().len() + 2),
    );
    let project = match (&server.project, server.scope, server.is_elsewhere) {
        (Some(project), Scope::Project, true) => {
            format!(
                "  (project {})",
                visible_line(&short_path(project, machine))
            )
        }
        _ => String::new(),
    };
    format!("{host}  {}{project}", output.style(Style::Dim, file))
}

fn describe(server: &ConfiguredServer, checked: Option<&Checked>, output: Output) -> Vec<String> {
    let name = visible_line(&server.name);
    let state = match server.is_disabled {
        true => output.style(Style::Yellow, " (disabled)"),
        false => String::new(),
    };
    let mut lines = vec![format!("  {}{state}", output.style(Style::Cyan, name))];
    let line = format!("line {}", server.line);
    let launch = visible_line(&launch_text(&server.launch)).into_owned();
    let width = output.width.saturating_sub(4);
    lines.push(format!("    {}", fit(&launch, width)));
    let (kind, names) = value_names(&server.launch);
    if !names.is_empty() {
        let text = format!("{kind}: {}", names.join(", "));
        let text = fit(&visible_line(&text), width);
        lines.push(format!("    {}", output.style(Style::Dim, text)));
    }
    match checked {
        Some(checked) => lines.extend(checked.lines(output)),
        None => {
            if let Some(last) = lines.get_mut(0) {
                last.push_str(&format!("  {}", output.style(Style::Dim, line)));
            }
        }
    }
    lines
}

/// Returns the command or the URL, without secrets.
pub(crate) fn launch_text(launch: &Launch) -> String {
    match launch {
        Launch::Url { url, .. } => RedactedUrl::new(url).to_string(),
        Launch::Command { command, args, .. } => {
            let words = std::iter::once(command).chain(args);
            redact_words(words.map(|word| word.into())).join(" ")
        }
    }
}

/// Returns the names of variables or headers. Their values are secrets.
fn value_names(launch: &Launch) -> (&'static str, Vec<&str>) {
    match launch {
        Launch::Url { headers, .. } => {
            let names = headers.iter().map(|header| header.name.as_str());
            ("headers", names.collect())
        }
        Launch::Command {
            env, passed_env, ..
        } => {
            let set = env.iter().map(|variable| variable.name.as_str());
            let passed = passed_env.iter().map(String::as_str);
            ("env", set.chain(passed).collect())
        }
    }
}

fn to_json(server: &ConfiguredServer, checked: Option<&Checked>) -> Value {
    let (kind, names) = value_names(&server.launch);
    let mut json = json!({
        "name": server.name,
        "target": format!("{}:{}", server.host.id(), server.name),
        "host": server.host.id(),
        "scope": match server.scope { Scope::Project => "project", Scope::User => "user" },
        "file": server.file.to_string_lossy(),
        "line": server.line,
        "disabled": server.is_disabled,
        kind: names,
    });
    match &server.launch {
        Launch::Url { url, .. } => json["url"] = RedactedUrl::new(url).as_str().into(),
        Launch::Command {
            command, args, cwd, ..
        } => {
            let words = std::iter::once(command).chain(args);
            let mut words = redact_words(words.map(|word| word.into()));
            json["command"] = words.remove(0).into();
            json["args"] = words.into();
            if let Some(cwd) = cwd {
                json["cwd"] = cwd.clone().into();
            }
        }
    }
    if let Some(project) = &server.project {
        json["project"] = project.to_string_lossy().into();
    }
    if let Some(checked) = checked {
        json["check"] = checked.to_json();
    }
    json
}

/// Returns a path with `~` for the home directory.
fn short_path(path: &Path, machine: &Machine) -> String {
    let below = machine
        .home
        .as_ref()
        .and_then(|home| path.strip_prefix(home).ok());
    match below {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}
