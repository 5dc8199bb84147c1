//! Homes of every platform, with the files of every host in them.

use std::collections::BTreeMap;
use std::io;

use super::*;
use crate::target::Target;

/// Files in memory.
#[derive(Default)]
struct Fixture(BTreeMap<PathBuf, String>);

impl Files for Fixture {
    fn read(&self, path: &Path) -> io::Result<Option<String>> {
        match self.0.get(path).map(String::as_str) {
            Some("<unreadable>") => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
            text => Ok(text.map(str::to_owned)),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.keys().any(|file| file.starts_with(path))
    }
}

impl Fixture {
    fn add(&mut self, path: impl AsRef<Path>, text: impl Into<String>) {
        let replaced = self.0.insert(path.as_ref().to_owned(), text.into());
        assert_eq!(replaced, None, "two files at {}", path.as_ref().display());
    }
}

/// A host, the paths of its file in the homes of Linux, macOS and Windows, and the file. Its one server is `stdio` or
/// `http`, and is named after the host.
type HostFile = (HostKind, [&'static str; 3], &'static str);

const HOST_FILES: &[HostFile] = &[
    (
        HostKind::ClaudeDesktop,
        [
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
            "AppData/Roaming/Claude/claude_desktop_config.json",
        ],
        r#"{"mcpServers": {"claude-desktop": {"command": "npx", "args": ["-y", "x"], "env": {"A": "s3cret"}}}}"#,
    ),
    (
        HostKind::ClaudeCode,
        [".claude.json"; 3],
        r#"{"numStartups": 3, "mcpServers": {"claude-code": {"type": "http", "url": "https://x.example/mcp", "headers": {"A": "s3cret"}}}}"#,
    ),
    (
        HostKind::Cursor,
        [".cursor/mcp.json"; 3],
        r#"{"mcpServers": {"cursor": {"url": "https://x.example/mcp"}}}"#,
    ),
    (
        HostKind::VsCode,
        [
            ".config/Code/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
            "AppData/Roaming/Code/User/mcp.json",
        ],
        "{\n  // servers\n  \"inputs\": [],\n  \"servers\": {\"vscode\": {\"type\": \"stdio\", \"command\": \"npx\", \"args\": [\"-y\", \"x\"]},},\n}",
    ),
    (
        HostKind::VsCodeInsiders,
        [
            ".config/Code - Insiders/User/mcp.json",
            "Library/Application Support/Code - Insiders/User/mcp.json",
            "AppData/Roaming/Code - Insiders/User/mcp.json",
        ],
        r#"{"servers": {"vscode-insiders": {"type": "http", "url": "https://x.example/mcp"}}}"#,
    ),
    (
        HostKind::Windsurf,
        [".codeium/windsurf/mcp_config.json"; 3],
        r#"{"mcpServers": {"windsurf": {"serverUrl": "https://x.example/mcp", "headers": {"A": "s3cret"}}}}"#,
    ),
    (
        HostKind::Zed,
        [
            ".config/zed/settings.json",
            ".config/zed/settings.json",
            "AppData/Roaming/Zed/settings.json",
        ],
        "// Zed settings\n{\"theme\": \"One Dark\", \"context_servers\": {\n  \"zed\": {\"source\": \"custom\", \"command\": \"npx\", \"args\": [\"-y\", \"x\"], \"env\": {}},\n  \"github\": {\"source\": \"extension\", \"settings\": {}}, } }",
    ),
    (
        HostKind::Codex,
        [".codex/config.toml"; 3],
        "model = \"o\"\n\n[mcp_servers.codex]\nurl = \"https://x.example/mcp\"\nbearer_token_env_var = \"TOKEN\"\n",
    ),
    (
        HostKind::GeminiCli,
        [".gemini/settings.json"; 3],
        r#"{"theme": "x", "mcpServers": {"gemini": {"httpUrl": "https://x.example/mcp", "headers": {"A": "$TOKEN"}}}}"#,
    ),
    (
        HostKind::Antigravity,
        [".gemini/antigravity/mcp_config.json"; 3],
        r#"{"mcpServers": {"antigravity": {"serverUrl": "https://x.example/mcp"}}}"#,
    ),
    (
        HostKind::Opencode,
        [".config/opencode/opencode.jsonc"; 3],
        "{\"mcp\": {\"opencode\": {\"type\": \"local\", /* all in one */ \"command\": [\"npx\", \"-y\", \"x\"], \"environment\": {\"A\": \"{env:TOKEN}\"}}}}",
    ),
    (
        HostKind::Goose,
        [
            ".config/goose/config.yaml",
            ".config/goose/config.yaml",
            "AppData/Roaming/Block/goose/config/config.yaml",
        ],
        "GOOSE_MODEL: m\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n  goose:\n    type: stdio\n    cmd: npx\n    args:\n      - -y\n      - x\n    envs: {A: s3cret}\n    enabled: true\n",
    ),
    (
        HostKind::CopilotCli,
        [".copilot/mcp-config.json"; 3],
        r#"{"mcpServers": {"copilot": {"type": "local", "command": "npx", "args": ["-y", "x"], "tools": ["*"]}}}"#,
    ),
    (
        HostKind::Cline,
        [
            ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            "AppData/Roaming/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ],
        r#"{"mcpServers": {"cline": {"type": "streamableHttp", "url": "https://x.example/mcp", "disabled": false}}}"#,
    ),
    (
        HostKind::ClineCli,
        [".cline/data/settings/cline_mcp_settings.json"; 3],
        r#"{"mcpServers": {"cline-cli": {"command": "npx", "args": ["-y", "x"]}}}"#,
    ),
    (
        HostKind::Roo,
        [
            ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
            "Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
            "AppData/Roaming/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        ],
        r#"{"mcpServers": {"roo": {"command": "npx", "args": ["-y", "x"], "alwaysAllow": []}}}"#,
    ),
    (
        HostKind::Continue,
        [".continue/config.yaml"; 3],
        "name: My assistant\nmcpServers:\n  - name: continue\n    command: npx\n    args: [\"-y\", \"x\"]\n",
    ),
    (
        HostKind::LmStudio,
        [".lmstudio/mcp.json"; 3],
        r#"{"mcpServers": {"lm-studio": {"url": "https://x.example/mcp"}}}"#,
    ),
    (
        HostKind::Kiro,
        [".kiro/settings/mcp.json"; 3],
        r#"{"mcpServers": {"kiro": {"command": "npx", "args": ["-y", "x"], "disabled": false}}}"#,
    ),
    (
        HostKind::Crush,
        [
            ".config/crush/crush.json",
            ".config/crush/crush.json",
            "AppData/Local/crush/crush.json",
        ],
        r#"{"mcp": {"crush": {"type": "http", "url": "https://x.example/mcp", "headers": {"A": "Bearer $TOKEN"}}}}"#,
    ),
    (
        HostKind::Mcporter,
        [".mcporter/mcporter.json"; 3],
        r#"{"mcpServers": {"mcporter": {"baseUrl": "https://x.example/mcp", "headers": {"A": "${TOKEN}"}}}}"#,
    ),
];

fn machine(platform: Platform) -> Machine {
    let home = match platform {
        Platform::Windows => "C:/people/ada",
        Platform::MacOs => "/mac/ada",
        Platform::Linux => "/linux/ada",
    };
    Machine {
        platform,
        home: Some(home.into()),
        env: BTreeMap::from([("TOKEN".to_owned(), "t0ken".to_owned())]),
        cwd: PathBuf::from(home).join("work/project/src"),
    }
}

fn in_home(machine: &Machine, path: &str) -> PathBuf {
    machine.home.as_ref().unwrap().join(path)
}

fn names(discovered: &Discovered) -> Vec<&str> {
    discovered
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect()
}

#[test]
fn the_servers_of_every_host_are_found_on_every_platform() {
    for (index, platform) in [Platform::Linux, Platform::MacOs, Platform::Windows]
        .into_iter()
        .enumerate()
    {
        let machine = machine(platform);
        let mut files = Fixture::default();
        for (_, paths, text) in HOST_FILES {
            files.add(in_home(&machine, paths[index]), *text);
        }

        let discovered = discover(&machine, &files);

        assert_eq!(discovered.problems, [], "{platform:?}");
        assert_eq!(discovered.files.len(), HOST_FILES.len(), "{platform:?}");
        for (host, paths, _) in HOST_FILES {
            let found: Vec<_> = discovered
                .servers
                .iter()
                .filter(|it| it.host == *host)
                .collect();
            let [server] = found[..] else {
                panic!("{platform:?} {host:?}: {found:?}");
            };
            assert_eq!(server.name, host.id(), "{platform:?}");
            assert_eq!(server.file, in_home(&machine, paths[index]));
            assert_eq!(server.scope, Scope::User);
            assert!(!server.is_disabled, "{host:?}");
            match server.target(&machine).unwrap() {
                Target::Command(target) => {
                    assert_eq!(
                        (target.program.as_os_str(), target.args),
                        ("npx".as_ref(), vec!["-y".into(), "x".into()]),
                        "{host:?}"
                    );
                }
                Target::Url(target) => {
                    assert_eq!(target.url, "https://x.example/mcp", "{host:?}");
                    for header in &target.headers {
                        let expected = ["s3cret", "t0ken", "Bearer t0ken"];
                        assert!(
                            expected.contains(&header.value.as_str()),
                            "{host:?}: {}",
                            header.value
                        );
                    }
                }
                Target::Recording(_) => panic!("{host:?}"),
            }
        }
    }
}

#[test]
fn project_files_are_found_above_the_current_directory_up_to_the_repository() {
    let machine = machine(Platform::Linux);
    let mut files = Fixture::default();
    let project = in_home(&machine, "work/project");
    let entry = |name: &str| format!(r#"{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}"#);
    files.add(project.join(".git/HEAD"), "");
    files.add(project.join(".mcp.json"), entry("claude-code"));
    files.add(project.join("src/.cursor/mcp.json"), entry("cursor"));
    files.add(
        project.join(".vscode/mcp.json"),
        r#"{"servers": {"vscode": {"command": "${workspaceFolder}/bin/x", "cwd": "sub"}}}"#,
    );
    files.add(
        project.join(".vscode/settings.json"),
        r#"{"mcp": {"servers": {"vscode-settings": {"command": "x"}}}}"#,
    );
    files.add(
        project.join(".zed/settings.json"),
        r#"{"context_servers": {"zed": {"command": {"path": "x", "args": ["a"], "env": {}}}}}"#,
    );
    files.add(
        project.join(".codex/config.toml"),
        "[mcp_servers.codex]\ncommand = 'x'\nenv_vars = ['TOKEN', 'UNSET']\n",
    );
    files.add(project.join(".gemini/settings.json"), entry("gemini"));
    files.add(
        project.join("opencode.json"),
        r#"{"mcp": {"opencode": {"type": "remote", "url": "https://x.example"}}}"#,
    );
    files.add(project.join(".roo/mcp.json"), entry("roo"));
    files.add(project.join(".kiro/settings/mcp.json"), entry("kiro"));
    files.add(
        project.join(".crush.json"),
        r#"{"mcp": {"crush": {"type": "stdio", "command": "x"}}}"#,
    );
    files.add(project.join("config/mcporter.json"), entry("mcporter"));
    files.add(project.join("mcp.json"), entry("plain"));
    files.add(in_home(&machine, "work/mcp.json"), entry("outside"));

    let discovered = discover(&machine, &files);

    assert_eq!(discovered.problems, []);
    let mut found = names(&discovered);
    assert_eq!(found[0], "cursor", "the nearest first");
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "claude-code",
            "codex",
            "crush",
            "cursor",
            "gemini",
            "kiro",
            "mcporter",
            "opencode",
            "plain",
            "roo",
            "vscode",
            "vscode-settings",
            "zed"
        ]
    );
    let target = |name: &str| {
        let server = discovered.servers.iter().find(|server| server.name == name);
        match server.unwrap().target(&machine) {
            Ok(Target::Command(target)) => target,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        target("vscode").program.to_str(),
        project.join("bin/x").to_str()
    );
    assert_eq!(target("vscode").cwd, Some(project.join("sub")));
    assert_eq!(target("zed").args, ["a"]);
    let env = target("codex").env;
    assert_eq!(env.len(), 1, "variables that are not set are not passed on");
    assert_eq!(
        (env[0].name.as_str(), env[0].value.as_str()),
        ("TOKEN", "t0ken")
    );
}

#[test]
fn servers_of_claude_code_belong_to_their_project() {
    for (platform, key) in [
        (Platform::Linux, "/linux/ada/work/project"),
        (Platform::Windows, "c:/PEOPLE/ada/work/project"),
    ] {
        let machine = machine(platform);
        let mut files = Fixture::default();
        files.add(
            in_home(&machine, ".claude.json"),
            format!(r#"{{"projects": {{"{key}": {{"mcpServers": {{"here": {{"command": "x"}}}}}}, "/elsewhere": {{"mcpServers": {{"there": {{"command": "x"}}}}}}}}}}"#),
        );

        let discovered = discover(&machine, &files);

        let found: Vec<_> = (discovered.servers.iter())
            .map(|server| (server.name.as_str(), server.is_elsewhere))
            .collect();
        assert_eq!(found, [("here", false), ("there", true)], "{platform:?}");
    }
}

#[test]
fn environment_variables_move_the_files_of_some_hosts() {
    let mut machine = machine(Platform::Linux);
    for (name, value) in [
        ("XDG_CONFIG_HOME", "/xdg"),
        ("CLAUDE_CONFIG_DIR", "/claude"),
        ("CODEX_HOME", "/codex"),
        ("CLINE_DIR", "/cline"),
    ] {
        machine.env.insert(name.to_owned(), value.to_owned());
    }
    let mut files = Fixture::default();
    let entry = |name: &str| format!(r#"{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}"#);
    files.add("/xdg/Claude/claude_desktop_config.json", entry("a"));
    files.add("/claude/.claude.json", entry("b"));
    files.add("/codex/config.toml", "mcp_servers.c.command = 'x'");
    files.add("/cline/data/settings/cline_mcp_settings.json", entry("d"));

    let discovered = discover(&machine, &files);

    assert_eq!(names(&discovered), ["a", "b", "c", "d"]);
}

#[test]
fn a_broken_file_or_entry_costs_only_itself() {
    let machine = machine(Platform::Linux);
    let mut files = Fixture::default();
    files.add(
        in_home(&machine, ".cursor/mcp.json"),
        "{\n  \"mcpServers\": {\n    \"a\": \n}",
    );
    files.add(in_home(&machine, ".lmstudio/mcp.json"), "<unreadable>");
    files.add(
        in_home(&machine, ".kiro/settings/mcp.json"),
        "{\"mcpServers\": []}",
    );
    files.add(
        in_home(&machine, ".gemini/settings.json"),
        "{\"mcpServers\": 7}",
    );
    files.add(
        in_home(&machine, ".copilot/mcp-config.json"),
        "{\"mcpServers\": {\n\"good\": {\"command\": \"x\", \"disabled\": true},\n\"bad\": {\"args\": []},\n\"worse\": {\"command\": \"x\",\n\"args\": \"y\"},\n\"both\": {\"command\": \"x\", \"url\": \"y\"}, \"list\": []}}",
    );

    let discovered = discover(&machine, &files);

    assert_eq!(names(&discovered), ["good"]);
    assert!(discovered.servers[0].is_disabled);
    let problems: Vec<_> = discovered
        .problems
        .iter()
        .map(ToString::to_string)
        .collect();
    let has = |text: &str| {
        assert!(
            problems.iter().any(|it| it.contains(text)),
            "{text}: {problems:?}"
        )
    };
    has(".cursor/mcp.json:4: ");
    has(".lmstudio/mcp.json: permission denied");
    has(".gemini/settings.json:1: `mcpServers` must be an object");
    has(".copilot/mcp-config.json:3: server `bad`: expected a `command` or a `url`");
    has(".copilot/mcp-config.json:5: server `worse`: `args` must be a list of strings");
    has("server `both`: has both a command and a URL");
    has("server `list`: expected an object");
    assert_eq!(problems.len(), 7, "{problems:?}");
}

#[test]
fn values_that_only_the_host_can_find_out_are_refused() {
    let machine = machine(Platform::Linux);
    let mut files = Fixture::default();
    files.add(
        in_home(&machine, ".config/Code/User/mcp.json"),
        r#"{"servers": {"a": {"command": "x", "args": ["${input:key}"]}}}"#,
    );
    files.add(
        in_home(&machine, ".config/crush/crush.json"),
        r#"{"mcp": {"b": {"command": "x", "env": {"K": "$(cat key)"}}}}"#,
    );
    files.add(
        in_home(&machine, ".cursor/mcp.json"),
        r#"{"mcpServers": {"c": {"command": "x", "env": {"K": "${UNSET}"}}}}"#,
    );
    files.add(
        in_home(&machine, ".lmstudio/mcp.json"),
        r#"{"mcpServers": {"d": {"command": "~/x", "args": ["${UNSET}"]}}}"#,
    );

    let discovered = discover(&machine, &files);

    let target = |name: &str| {
        let server = discovered.servers.iter().find(|server| server.name == name);
        server.unwrap().target(&machine)
    };
    assert!(target("a").unwrap_err().contains("`args`: the host asks"));
    assert!(
        target("b")
            .unwrap_err()
            .contains("`env.K`: the host runs a shell")
    );
    assert!(target("c").unwrap_err().contains("`UNSET` is not set"));
    let Ok(Target::Command(literal)) = target("d") else {
        panic!("this host replaces no variables");
    };
    assert_eq!(literal.args, ["${UNSET}"]);
    assert_eq!(literal.program, "/linux/ada/x");
}

#[test]
fn a_file_that_the_user_names_may_have_the_shape_of_any_host() {
    let mut files = Fixture::default();
    files.add("a.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    files.add("b.toml", "[mcp_servers.b]\ncommand = 'x'\n");
    files.add(
        "c.yaml",
        "extensions:\n  c: {type: sse, uri: 'https://x.example'}\n",
    );
    files.add("d.json", r#"{"mcp": {"servers": {"d": {"command": "x"}}}}"#);
    files.add("e.json", r#"{"mcp": {"e": {"command": ["x"]}}}"#);
    files.add("none.json", "{}");

    for name in ["a.json", "b.toml", "c.yaml", "d.json", "e.json"] {
        let read = read_file(Path::new(name), &files).unwrap();
        assert_eq!(names(&read), [&name[..1]], "{name}");
    }
    assert!(read_file(Path::new("none.json"), &files).is_err());
    assert!(
        read_file(Path::new("missing.json"), &files)
            .unwrap_err()
            .to_string()
            .contains("no such file")
    );
}

#[test]
fn secrets_are_not_part_of_debug_output() {
    let machine = machine(Platform::Linux);
    let mut files = Fixture::default();
    for (_, paths, text) in HOST_FILES {
        files.add(in_home(&machine, paths[0]), *text);
    }

    let discovered = discover(&machine, &files);

    assert!(!format!("{discovered:?}").contains("s3cret"));
}

/// Every format reads every mutation of every fixture, or refuses it.
#[test]
fn files_that_were_damaged_never_cause_a_panic() {
    let machine = machine(Platform::Linux);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20 {
        for (_, paths, text) in HOST_FILES {
            let mut files = Fixture::default();
            files.add(in_home(&machine, paths[0]), damaged(text, &mut random));

            let discovered = discover(&machine, &files);

            for server in &discovered.servers {
                let _ = server.target(&machine);
            }
            for name in ["x.json", "x.toml", "x.yaml"] {
                let mut files = Fixture::default();
                files.add(name, damaged(text, &mut random));
                let _ = read_file(Path::new(name), &files);
            }
        }
    }
}

/// A generator whose numbers are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

/// Removes, repeats and replaces a few characters.
fn damaged(text: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(4) {
        if chars.is_empty() {
            break;
        }
        let at = random.below(chars.len());
        match random.below(4) {
            0 => drop(chars.remove(at)),
            1 => chars.truncate(at.max(1)),
            2 => {
                let part: Vec<char> = chars[at..].iter().take(9).copied().collect();
                chars.splice(at..at, part);
            }
            _ => {
                let odd = [
                    '"',
                    '{',
                    '}',
                    '[',
                    ']',
                    ':',
                    '\\',
                    '\n',
                    '$',
                    '&',
                    '*',
                    '\u{0}',
                    '\u{10ffff}',
                    '-',
                ];
                chars[at] = odd[random.below(odd.len())];
            }
        }
    }
    chars.into_iter().collect()
}
