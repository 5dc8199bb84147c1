//! The table of real programs: the name and version of each, its packages, its command lines, and the tool to call.
//!
//! Command lines have placeholders: `{bin}` is the folder of the installed programs, `{programs}` that of our client
//! scripts, `{data}` a folder with a file and a repository, `{port}` a free port; `{node}` and `{python}` are the
//! interpreters. A mode, `auto` or `sse`, and a URL or a command are appended for clients.

use super::super::cell::Transport::{self, Http, HttpSse, Stdio};

/// A published program.
#[derive(Debug)]
pub(super) struct RealPeer {
    pub(super) name: &'static str,
    pub(super) package: Package,
    /// Whether it is one of the reference servers of the protocol, which the command `bowline` is run with too.
    pub(super) is_reference_server: bool,
    pub(super) launches: &'static [Launch],
    /// The launches through a bridge: of servers over stdio, for clients over the transport of the launch.
    pub(super) bridged: &'static [Launch],
}

/// The packages to install, with exact versions. The SDK below the program is pinned too, because registries resolve it
/// to a new version every week.
#[derive(Debug)]
pub(super) enum Package {
    Npm(&'static [&'static str]),
    Pip(&'static [&'static str]),
    /// A folder below `conformance/peers` with our programs and a lock file.
    Cargo(&'static str),
}

/// One way to start the program.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) role: Role,
    pub(super) over: Transport,
    pub(super) start: &'static str,
}

#[derive(Debug)]
pub(super) enum Role {
    Client,
    Server(&'static ToolCase),
}

/// A tool of a server, its arguments, and a part of the expected text.
#[derive(Debug)]
pub(super) struct ToolCase {
    pub(super) tool: &'static str,
    pub(super) arguments: &'static str,
    pub(super) expected: &'static str,
    /// A slow tool and its arguments for the call that is dropped; `tool` itself if `None`.
    pub(super) slow: Option<(&'static str, &'static str)>,
}

const fn client(over: Transport, start: &'static str) -> Launch {
    let role = Role::Client;
    Launch { role, over, start }
}

const fn server(over: Transport, start: &'static str, case: &'static ToolCase) -> Launch {
    let role = Role::Server(case);
    Launch { role, over, start }
}

/// All programs, in the order of the results page.
pub(super) const PEERS: &[RealPeer] = &[
    RealPeer {
        name: "server-everything 2026.8.31",
        package: Package::Npm(&[
            "@modelcontextprotocol/server-everything@2026.8.31",
            "@modelcontextprotocol/sdk@1.32.2",
        ]),
        is_reference_server: true,
        launches: &[
            server(
                Stdio,
                "{node} {bin}/mcp-server-everything stdio",
                &EVERYTHING,
            ),
            server(
                Http,
                "env PORT={port} {node} {bin}/mcp-server-everything streamableHttp",
                &EVERYTHING,
            ),
            server(
                HttpSse,
                "env PORT={port} {node} {bin}/mcp-server-everything sse",
                &EVERYTHING,
            ),
        ],
        bridged: &[
            server(
                Stdio,
                "{node} {bin}/mcp-server-everything stdio",
                &EVERYTHING,
            ),
            server(
                Http,
                "{node} {bin}/mcp-server-everything stdio",
                &EVERYTHING,
            ),
        ],
    },
    RealPeer {
        name: "server-filesystem 2026.8.31",
        package: Package::Npm(&[
            "@modelcontextprotocol/server-filesystem@2026.8.31",
            "@modelcontextprotocol/sdk@1.32.2",
        ]),
        is_reference_server: true,
        launches: &[server(
            Stdio,
            "{node} {bin}/mcp-server-filesystem {data}",
            &READ,
        )],
        bridged: &[
            server(Stdio, "{node} {bin}/mcp-server-filesystem {data}", &READ),
            server(Http, "{node} {bin}/mcp-server-filesystem {data}", &READ),
        ],
    },
    RealPeer {
        name: "mcp-server-git 2026.10.19",
        package: Package::Pip(&["mcp-server-git==2026.10.19", "mcp==2.3.0"]),
        is_reference_server: true,
        launches: &[server(
            Stdio,
            "{bin}/mcp-server-git --repository {data}/repository",
            &STATUS,
        )],
        bridged: &[
            server(
                Stdio,
                "{bin}/mcp-server-git --repository {data}/repository",
                &STATUS,
            ),
            server(
                Http,
                "{bin}/mcp-server-git --repository {data}/repository",
                &STATUS,
            ),
        ],
    },
    RealPeer {
        name: "mcp-server-time 2026.10.19",
        package: Package::Pip(&["mcp-server-time==2026.10.19", "mcp==2.3.0"]),
        is_reference_server: true,
        launches: &[server(
            Stdio,
            "{bin}/mcp-server-time --local-timezone UTC",
            &TIME,
        )],
        bridged: &[
            server(Stdio, "{bin}/mcp-server-time --local-timezone UTC", &TIME),
            server(Http, "{bin}/mcp-server-time --local-timezone UTC", &TIME),
        ],
    },
    RealPeer {
        name: "fastmcp 4.1.2",
        package: Package::Pip(&["fastmcp==4.1.2", "mcp==2.3.0"]),
        is_reference_server: false,
        launches: &[
            client(Stdio, "{python} {programs}/fastmcp_client.py"),
            client(Http, "{python} {programs}/fastmcp_client.py"),
            client(HttpSse, "{python} {programs}/fastmcp_client.py"),
            server(Stdio, "{python} {programs}/fastmcp_server.py stdio", &SUM),
            server(
                Http,
                "{python} {programs}/fastmcp_server.py http {port}",
                &SUM,
            ),
            server(
                HttpSse,
                "{python} {programs}/fastmcp_server.py sse {port}",
                &SUM,
            ),
        ],
        bridged: &[],
    },
    RealPeer {
        name: "inspector 2.12.0",
        package: Package::Npm(&["@modelcontextprotocol/inspector@2.12.0"]),
        is_reference_server: false,
        launches: &[
            client(Stdio, "{node} {programs}/inspector_client.mjs"),
            client(Http, "{node} {programs}/inspector_client.mjs"),
        ],
        bridged: &[
            client(Stdio, "{node} {programs}/inspector_client.mjs"),
            client(Http, "{node} {programs}/inspector_client.mjs"),
        ],
    },
    RealPeer {
        name: "openai-agents 0.24.0",
        package: Package::Pip(&["openai-agents==0.24.0", "mcp==2.3.0"]),
        is_reference_server: false,
        launches: &[
            client(Stdio, "{python} {programs}/openai_agents_client.py"),
            client(Http, "{python} {programs}/openai_agents_client.py"),
            client(HttpSse, "{python} {programs}/openai_agents_client.py"),
        ],
        bridged: &[],
    },
    RealPeer {
        name: "pydantic-ai 2.63.0",
        package: Package::Pip(&[
            "pydantic-ai-slim[mcp]==2.63.0",
            "fastmcp-slim==4.1.4",
            "mcp==2.3.0",
        ]),
        is_reference_server: false,
        launches: &[
            client(Stdio, "{python} {programs}/pydantic_ai_client.py"),
            client(Http, "{python} {programs}/pydantic_ai_client.py"),
            client(HttpSse, "{python} {programs}/pydantic_ai_client.py"),
        ],
        bridged: &[],
    },
    RealPeer {
        name: "python 1.6.0",
        // It does not start with a newer pydantic.
        package: Package::Pip(&["mcp==1.6.0", "pydantic==2.10.6"]),
        is_reference_server: false,
        launches: &[
            client(Stdio, "{python} {programs}/python_client.py"),
            client(HttpSse, "{python} {programs}/python_client.py"),
            server(Stdio, "{python} {programs}/python_server.py stdio", &SUM),
            server(
                HttpSse,
                "{python} {programs}/python_server.py sse {port}",
                &SUM,
            ),
        ],
        bridged: &[],
    },
    RealPeer {
        name: "typescript 1.0.4",
        package: Package::Npm(&["@modelcontextprotocol/sdk@1.0.4"]),
        is_reference_server: false,
        launches: &[
            client(Stdio, "{node} {programs}/typescript_client.mjs"),
            // It does not bundle an `EventSource`.
            client(
                HttpSse,
                "{node} --experimental-eventsource {programs}/typescript_client.mjs",
            ),
            server(Stdio, "{node} {programs}/typescript_server.mjs stdio", &SUM),
            server(
                HttpSse,
                "{node} {programs}/typescript_server.mjs sse {port}",
                &SUM,
            ),
        ],
        bridged: &[],
    },
    RealPeer {
        name: "typescript 1.10.2",
        package: Package::Npm(&["@modelcontextprotocol/sdk@1.10.2"]),
        is_reference_server: false,
        launches: &[
            client(Http, "{node} {programs}/typescript_client.mjs"),
            server(
                Http,
                "{node} {programs}/typescript_server.mjs http {port}",
                &SUM,
            ),
        ],
        bridged: &[],
    },
    RealPeer {
        name: "rmcp 0.2.1",
        package: Package::Cargo("rmcp-0"),
        is_reference_server: false,
        launches: &[
            client(Stdio, "{bin}/client"),
            client(Http, "{bin}/client"),
            client(HttpSse, "{bin}/client"),
            server(Stdio, "{bin}/server stdio", &SUM),
            server(Http, "{bin}/server http {port}", &SUM),
            server(HttpSse, "{bin}/server sse {port}", &SUM),
        ],
        bridged: &[],
    },
];

/// Its long operation ignores cancellation and keeps the process alive, so it is short.
const EVERYTHING: ToolCase = ToolCase {
    tool: "get-sum",
    arguments: r#"{"a": 2, "b": 40}"#,
    expected: "The sum of 2 and 40 is 42.",
    slow: Some((
        "trigger-long-running-operation",
        r#"{"duration": 2, "steps": 1}"#,
    )),
};

const READ: ToolCase = ToolCase {
    tool: "read_text_file",
    arguments: r#"{"path": "{data}/hello.txt"}"#,
    expected: "Hello from a file.",
    slow: None,
};

const STATUS: ToolCase = ToolCase {
    tool: "git_status",
    arguments: r#"{"repo_path": "{data}/repository"}"#,
    expected: "No commits yet",
    slow: None,
};

const TIME: ToolCase = ToolCase {
    tool: "convert_time",
    arguments: r#"{"source_timezone": "Europe/Paris", "time": "12:00", "target_timezone": "Asia/Tokyo"}"#,
    expected: "Asia/Tokyo",
    slow: None,
};

/// The tool of the servers that we wrote with an SDK.
const SUM: ToolCase = ToolCase {
    tool: "add",
    arguments: r#"{"a": 2, "b": 40}"#,
    expected: "42",
    slow: Some(("slow", r#"{"seconds": 600}"#)),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_exact_and_part_of_the_name() {
        for RealPeer { name, package, .. } in PEERS {
            let (packages, sign) = match package {
                Package::Npm(packages) => (*packages, "@"),
                Package::Pip(packages) => (*packages, "=="),
                Package::Cargo(_) => continue,
            };
            for package in packages {
                let (_, version) = package.rsplit_once(sign).unwrap_or_default();
                let is_exact = version.starts_with(|c: char| c.is_ascii_digit());
                assert!(is_exact, "{name}: {package}");
            }
            let version = name.rsplit(' ').next().unwrap_or_default();
            assert!(packages[0].ends_with(version), "{name}: {packages:?}");
        }
    }

    #[test]
    fn a_program_is_listed_once() {
        let mut names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        names.sort_unstable();
        names.dedup();

        assert_eq!(names.len(), PEERS.len());
    }
}
