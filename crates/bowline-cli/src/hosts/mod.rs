//! The MCP servers that the hosts on this machine are configured to use: Claude, Cursor, VS Code and others.
//!
//! [`discover`] reads the files of all hosts. It is a function of a [`Machine`] and its [`Files`], starts nothing, and
//! a broken file costs only itself.

mod expand;

mod formats;
pub(crate) use formats::FileFormat;

mod machine;
pub(crate) use machine::{DiskFiles, Files, Machine, Platform};

mod node;

mod places;
pub(crate) use places::{HostKind, Scope};

mod server;
pub(crate) use server::{ConfiguredServer, Launch};

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use node::{Node, NodeValue};
use places::{ANY_KEYS, Place, places};
use server::read_entry;

/// The servers of all hosts, and what is wrong with their files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discovered {
    /// Those of projects first.
    pub(crate) servers: Vec<ConfiguredServer>,
    pub(crate) problems: Vec<FileProblem>,
    /// The files that exist.
    pub(crate) files: Vec<PathBuf>,
}

/// A file, or an entry of it, that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileProblem {
    pub(crate) file: PathBuf,
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

impl std::fmt::Display for FileProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.file.display();
        match self.line {
            Some(line) => write!(f, "{file}:{line}: {}", self.message),
            None => write!(f, "{file}: {}", self.message),
        }
    }
}

/// Reads the configuration of every host.
pub(crate) fn discover(machine: &Machine, files: &impl Files) -> Discovered {
    let projects = machine.project_dirs(|path| files.exists(path));
    let mut discovered = Discovered::default();
    for place in places(machine, &projects) {
        discovered.read_place(&place, machine, &projects, files);
    }
    discovered
}

/// Reads one file that the user names. Its servers are under any key that a host uses.
pub(crate) fn read_file(path: &Path, files: &impl Files) -> Result<Discovered, FileProblem> {
    let problem = |message: String| FileProblem {
        file: path.to_owned(),
        line: None,
        message,
    };
    let text = files
        .read(path)
        .map_err(|error| problem(error.to_string()))?;
    let text = text.ok_or_else(|| problem("no such file".to_owned()))?;
    let root = FileFormat::of(path)
        .parse(&text)
        .map_err(|error| FileProblem {
            line: Some(error.line),
            ..problem(error.message)
        })?;
    let found = ANY_KEYS.iter().find_map(|keys| {
        let servers = keys.iter().try_fold(&root, |node, key| node.get(key))?;
        Some((*keys, servers))
    });
    let Some((keys, servers)) = found else {
        return Err(problem("expected an object `mcpServers`".to_owned()));
    };
    let place = Place {
        host: HostKind::Plain,
        scope: Scope::User,
        path: path.to_owned(),
        keys,
        project: None,
    };
    let mut discovered = Discovered::default();
    discovered.add_servers(&place, servers, false);
    Ok(discovered)
}

impl Discovered {
    fn read_place(
        &mut self,
        place: &Place,
        machine: &Machine,
        projects: &[PathBuf],
        files: &impl Files,
    ) {
        let text = match files.read(&place.path) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(error) => return self.add_problem(place, None, error.to_string()),
        };
        // macOS and Windows find a file by its name in any case.
        let is_same = |file: &PathBuf| same_path(file, &place.path, machine.platform);
        match self.files.iter().any(is_same) && place.host == HostKind::ClaudeDesktop {
            true => return,
            false => self.files.push(place.path.clone()),
        }
        let root = match FileFormat::of(&place.path).parse(&text) {
            Ok(root) => root,
            Err(error) => return self.add_problem(place, Some(error.line), error.message),
        };
        if place.host == HostKind::ClaudeCode && place.scope == Scope::User {
            self.add_claude_projects(place, &root, machine.platform, projects);
        }
        // Most files have other settings too, and often no servers.
        let servers = (place.keys.iter()).try_fold(&root, |node, key| node.get(key));
        if let Some(servers) = servers {
            self.add_servers(place, servers, false);
        }
    }

    /// Claude Code keeps the servers of each project in the file of the user.
    fn add_claude_projects(
        &mut self,
        place: &Place,
        root: &Node,
        platform: Platform,
        projects: &[PathBuf],
    ) {
        let members = root.get("projects").and_then(Node::members);
        for (path, project) in members.unwrap_or_default() {
            let Some(servers) = project.get("mcpServers") else {
                continue;
            };
            let path = PathBuf::from(path);
            let is_elsewhere = !(projects.iter()).any(|it| same_path(it, &path, platform));
            let place = Place {
                scope: Scope::Project,
                project: Some(path),
                ..place.clone()
            };
            self.add_servers(&place, servers, is_elsewhere);
        }
    }

    fn add_servers(&mut self, place: &Place, servers: &Node, is_elsewhere: bool) {
        match &servers.value {
            NodeValue::Map(members) => {
                for (name, entry) in members {
                    self.add_server(place, name, entry, is_elsewhere);
                }
            }
            NodeValue::List(items) => {
                for entry in items {
                    let name = entry.get("name").and_then(Node::as_text);
                    match name {
                        Some(name) => self.add_server(place, name, entry, is_elsewhere),
                        None => {
                            let message = "a server has no `name`".to_owned();
                            self.add_problem(place, Some(entry.line), message);
                        }
                    }
                }
            }
            _ => {
                let message = format!("`{}` must be an object", place.keys.join("."));
                self.add_problem(place, Some(servers.line), message);
            }
        }
    }

    fn add_server(&mut self, place: &Place, name: &str, entry: &Node, is_elsewhere: bool) {
        match read_entry(entry) {
            Ok(None) => {}
            Ok(Some(read)) => self.servers.push(ConfiguredServer {
                host: place.host,
                scope: place.scope,
                name: name.to_owned(),
                file: place.path.clone(),
                line: entry.line,
                project: place.project.clone(),
                is_elsewhere,
                is_disabled: read.is_disabled,
                launch: read.launch,
            }),
            Err((line, what)) => {
                self.add_problem(place, Some(line), format!("server `{name}`: {what}"));
            }
        }
    }

    fn add_problem(&mut self, place: &Place, line: Option<usize>, message: String) {
        self.problems.push(FileProblem {
            file: place.path.clone(),
            line,
            message,
        });
    }
}

/// Compares paths. Those of Windows and macOS have no case, and configuration files of Windows use `/` too.
fn same_path(one: &Path, other: &Path, platform: Platform) -> bool {
    if platform == Platform::Linux {
        return one == other;
    }
    let normal = |path: &Path| path.to_string_lossy().replace('\\', "/").to_lowercase();
    normal(one) == normal(other)
}
