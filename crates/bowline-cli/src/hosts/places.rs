//! Where each host keeps its servers: the paths of its files, and the key of the servers in them.

use std::path::PathBuf;

use super::machine::{Machine, Platform};

/// A program that uses MCP servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostKind {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    VsCode,
    VsCodeInsiders,
    Windsurf,
    Zed,
    Codex,
    GeminiCli,
    Antigravity,
    Opencode,
    Goose,
    CopilotCli,
    Cline,
    ClineCli,
    Roo,
    Continue,
    LmStudio,
    Kiro,
    Crush,
    Mcporter,
    /// A file that is named `mcp.json`, of any host, or that the user names.
    Plain,
}

impl HostKind {
    /// Returns the word for the host on the command line, as in `cursor:files`.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::VsCodeInsiders => "vscode-insiders",
            Self::Windsurf => "windsurf",
            Self::Zed => "zed",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini",
            Self::Antigravity => "antigravity",
            Self::Opencode => "opencode",
            Self::Goose => "goose",
            Self::CopilotCli => "copilot",
            Self::Cline => "cline",
            Self::ClineCli => "cline-cli",
            Self::Roo => "roo",
            Self::Continue => "continue",
            Self::LmStudio => "lm-studio",
            Self::Kiro => "kiro",
            Self::Crush => "crush",
            Self::Mcporter => "mcporter",
            Self::Plain => "file",
        }
    }

    /// Returns the name of the host for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::VsCodeInsiders => "VS Code Insiders",
            Self::Windsurf => "Windsurf",
            Self::Zed => "Zed",
            Self::Codex => "Codex",
            Self::GeminiCli => "Gemini CLI",
            Self::Antigravity => "Antigravity",
            Self::Opencode => "opencode",
            Self::Goose => "Goose",
            Self::CopilotCli => "Copilot CLI",
            Self::Cline => "Cline",
            Self::ClineCli => "Cline CLI",
            Self::Roo => "Roo Code",
            Self::Continue => "Continue",
            Self::LmStudio => "LM Studio",
            Self::Kiro => "Kiro",
            Self::Crush => "Crush",
            Self::Mcporter => "mcporter",
            Self::Plain => "mcp.json",
        }
    }
}

/// Whom a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Project,
    User,
}

/// A file that may contain servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: HostKind,
    pub(crate) scope: Scope,
    pub(crate) path: PathBuf,
    /// The keys that lead to the servers.
    pub(crate) keys: &'static [&'static str],
    /// The directory of the project that the file belongs to.
    pub(crate) project: Option<PathBuf>,
}

/// Returns the places of all hosts. Those of projects come first, the nearest first, because hosts prefer them.
pub(crate) fn places(machine: &Machine, projects: &[PathBuf]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut add = |place: Place| {
        // In the home directory a file of the user looks like one of a project.
        if !places
            .iter()
            .any(|it| it.path == place.path && it.keys == place.keys)
        {
            places.push(place);
        }
    };
    let user = user_places(machine);
    for project in projects {
        for (host, path, keys) in PROJECT_FILES {
            let path = project.join(path);
            let project = Some(project.clone());
            let is_of_user = user.iter().any(|(_, it, _)| *it == path);
            if !is_of_user {
                let (host, keys) = (*host, *keys);
                let scope = Scope::Project;
                add(Place {
                    host,
                    scope,
                    path,
                    keys,
                    project,
                });
            }
        }
    }
    for (host, path, keys) in user {
        let (scope, project) = (Scope::User, None);
        add(Place {
            host,
            scope,
            path,
            keys,
            project,
        });
    }
    places
}

type Keys = &'static [&'static str];

const MCP_SERVERS: Keys = &["mcpServers"];
const SERVERS: Keys = &["servers"];
const CONTEXT_SERVERS: Keys = &["context_servers"];
const MCP: Keys = &["mcp"];
/// The settings of VS Code before `mcp.json`.
const MCP_DOT_SERVERS: Keys = &["mcp", "servers"];
const CODEX_SERVERS: Keys = &["mcp_servers"];
const EXTENSIONS: Keys = &["extensions"];

/// The keys of a file that no host is known for, in the order in which they are tried.
pub(super) const ANY_KEYS: &[Keys] = &[
    MCP_SERVERS,
    SERVERS,
    CONTEXT_SERVERS,
    CODEX_SERVERS,
    MCP_DOT_SERVERS,
    MCP,
    EXTENSIONS,
];

const PROJECT_FILES: &[(HostKind, &str, Keys)] = &[
    (HostKind::ClaudeCode, ".mcp.json", MCP_SERVERS),
    (HostKind::Cursor, ".cursor/mcp.json", MCP_SERVERS),
    (HostKind::VsCode, ".vscode/mcp.json", SERVERS),
    (HostKind::VsCode, ".vscode/settings.json", MCP_DOT_SERVERS),
    (HostKind::Zed, ".zed/settings.json", CONTEXT_SERVERS),
    (HostKind::Codex, ".codex/config.toml", CODEX_SERVERS),
    (HostKind::GeminiCli, ".gemini/settings.json", MCP_SERVERS),
    (HostKind::Opencode, "opencode.json", MCP),
    (HostKind::Opencode, "opencode.jsonc", MCP),
    (HostKind::Roo, ".roo/mcp.json", MCP_SERVERS),
    (HostKind::Kiro, ".kiro/settings/mcp.json", MCP_SERVERS),
    (HostKind::Crush, ".crush.json", MCP),
    (HostKind::Crush, "crush.json", MCP),
    (HostKind::Mcporter, "config/mcporter.json", MCP_SERVERS),
    (HostKind::Plain, "mcp.json", MCP_SERVERS),
];

/// The folder that a file of the user is in.
#[derive(Clone, Copy)]
enum Base {
    Home,
    /// The folder for settings by the rules of the platform.
    Config,
    /// The folder for settings by the rules of Linux, which some programs follow everywhere.
    Xdg,
    /// The folder in a variable, or else this folder in the home directory.
    Variable(&'static str, &'static str),
    /// The same folder as `Config`, on Windows only.
    WindowsConfig,
    /// The folder for settings that stay on the machine, on Windows only.
    WindowsLocal,
}

impl Base {
    fn path(self, machine: &Machine) -> Option<PathBuf> {
        let is_windows = machine.platform == Platform::Windows;
        match self {
            Self::Home => machine.home.clone(),
            Self::Config => machine.config(),
            Self::Xdg => machine.xdg_config(),
            Self::Variable(name, folder) => {
                let set = machine.path_variable(name);
                set.or_else(|| machine.home_path(folder))
            }
            Self::WindowsConfig => machine.config().filter(|_| is_windows),
            Self::WindowsLocal => machine.local_app_data().filter(|_| is_windows),
        }
    }
}

const CLINE: &str =
    "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";
const ROO: &str = "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json";

#[rustfmt::skip] // a table
const USER_FILES: &[(HostKind, Base, &str, Keys)] = &[
    // Sources disagree on the case on Linux.
    (HostKind::ClaudeDesktop, Base::Config, "Claude/claude_desktop_config.json", MCP_SERVERS),
    (HostKind::ClaudeDesktop, Base::Config, "claude/claude_desktop_config.json", MCP_SERVERS),
    (HostKind::ClaudeCode, Base::Variable("CLAUDE_CONFIG_DIR", ""), ".claude.json", MCP_SERVERS),
    (HostKind::Cursor, Base::Home, ".cursor/mcp.json", MCP_SERVERS),
    (HostKind::VsCode, Base::Config, "Code/User/mcp.json", SERVERS),
    (HostKind::VsCode, Base::Config, "Code/User/settings.json", MCP_DOT_SERVERS),
    (HostKind::VsCodeInsiders, Base::Config, "Code - Insiders/User/mcp.json", SERVERS),
    (HostKind::Windsurf, Base::Home, ".codeium/windsurf/mcp_config.json", MCP_SERVERS),
    (HostKind::Windsurf, Base::Home, ".codeium/windsurf-next/mcp_config.json", MCP_SERVERS),
    (HostKind::Windsurf, Base::Home, ".codeium/mcp_config.json", MCP_SERVERS),
    // Sources disagree on macOS and Windows.
    (HostKind::Zed, Base::Xdg, "zed/settings.json", CONTEXT_SERVERS),
    (HostKind::Zed, Base::Config, "Zed/settings.json", CONTEXT_SERVERS),
    (HostKind::Codex, Base::Variable("CODEX_HOME", ".codex"), "config.toml", CODEX_SERVERS),
    (HostKind::GeminiCli, Base::Home, ".gemini/settings.json", MCP_SERVERS),
    (HostKind::Antigravity, Base::Home, ".gemini/antigravity/mcp_config.json", MCP_SERVERS),
    (HostKind::Opencode, Base::Xdg, "opencode/opencode.json", MCP),
    (HostKind::Opencode, Base::Xdg, "opencode/opencode.jsonc", MCP),
    (HostKind::Goose, Base::Xdg, "goose/config.yaml", EXTENSIONS),
    (HostKind::Goose, Base::WindowsConfig, "Block/goose/config/config.yaml", EXTENSIONS),
    (HostKind::CopilotCli, Base::Variable("COPILOT_HOME", ".copilot"), "mcp-config.json", MCP_SERVERS),
    (HostKind::Cline, Base::Config, CLINE, MCP_SERVERS),
    (HostKind::ClineCli, Base::Variable("CLINE_DIR", ".cline"), "data/settings/cline_mcp_settings.json", MCP_SERVERS),
    (HostKind::Roo, Base::Config, ROO, MCP_SERVERS),
    (HostKind::Continue, Base::Home, ".continue/config.yaml", MCP_SERVERS),
    (HostKind::LmStudio, Base::Home, ".lmstudio/mcp.json", MCP_SERVERS),
    (HostKind::LmStudio, Base::Home, ".cache/lm-studio/mcp.json", MCP_SERVERS),
    (HostKind::Kiro, Base::Home, ".kiro/settings/mcp.json", MCP_SERVERS),
    (HostKind::Crush, Base::Xdg, "crush/crush.json", MCP),
    (HostKind::Crush, Base::WindowsLocal, "crush/crush.json", MCP),
    (HostKind::Mcporter, Base::Home, ".mcporter/mcporter.json", MCP_SERVERS),
    (HostKind::Mcporter, Base::Home, ".mcporter/mcporter.jsonc", MCP_SERVERS),
];

fn user_places(machine: &Machine) -> Vec<(HostKind, PathBuf, Keys)> {
    let places = USER_FILES.iter().filter_map(|(host, base, path, keys)| {
        let folder = base.path(machine)?;
        Some((*host, folder.join(path), *keys))
    });
    places.collect()
}
