//! Renders all cells as `conformance/RESULTS.md`, and those of the SDKs with a bridge as a part of `CELLS.md`.

use std::collections::BTreeSet;

use super::cell::{CHECKS, Cell, CheckResult, Side};
use super::known_failures::KnownFailures;
use super::{bridged, real, tasks, tool, traced};

/// One of the parts of the two pages, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PagePart {
    Sdks,
    Tasks,
    /// A recording, served to the SDKs.
    Mocked,
    /// The command `bowline` with the servers of the SDKs.
    Tool,
    /// One trace through SDKs, bridge and server.
    Traced,
    Real,
    /// Published programs with a bridge in between.
    BridgedReal,
    /// The command `bowline` with published servers.
    ToolReal,
    /// The SDKs with a bridge in between.
    Bridged,
    /// Implementations of tasks with a bridge in between.
    BridgedTasks,
}

/// A page, and its parts with the text that each starts with.
struct Page {
    file: &'static str,
    /// The text before them is written by something else, or is the first part of `RESULTS.md`.
    starts: &'static [(PagePart, &'static str)],
}

impl PagePart {
    /// Returns the command that writes it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Sdks
            | Self::Tasks
            | Self::Mocked
            | Self::Tool
            | Self::Traced
            | Self::Bridged
            | Self::BridgedTasks => "cargo xtask interop",
            Self::Real | Self::BridgedReal | Self::ToolReal => "cargo xtask interop --real",
        }
    }

    /// Returns the path of the page that it is a part of.
    pub(crate) fn file(self) -> &'static str {
        self.page().file
    }

    fn page(self) -> &'static Page {
        match self {
            Self::Bridged | Self::BridgedTasks => &CELLS,
            _ => &RESULTS,
        }
    }

    /// Replaces this part of the page.
    pub(crate) fn replace_in(self, page: &str, text: &str) -> String {
        // From the last part to the first, because each ends where the next one starts.
        let mut rest = page;
        let mut parts = Vec::new();
        for &(part, start) in self.page().starts.iter().rev() {
            let (before, of_part) = rest.split_at(rest.find(start).unwrap_or(rest.len()));
            parts.push(if part == self { text } else { of_part });
            rest = before;
        }
        parts.push(if self == Self::Sdks { text } else { rest });
        parts.into_iter().rev().collect()
    }
}

const RESULTS: Page = Page {
    file: "conformance/RESULTS.md",
    starts: &[
        (PagePart::Tasks, TASKS_INTRODUCTION_START),
        (PagePart::Mocked, MOCKED_INTRODUCTION_START),
        (PagePart::Tool, TOOL_INTRODUCTION_START),
        (PagePart::Traced, TRACED_INTRODUCTION_START),
        (PagePart::Real, REAL_INTRODUCTION_START),
        (PagePart::BridgedReal, BRIDGED_REAL_INTRODUCTION_START),
        (PagePart::ToolReal, TOOL_REAL_INTRODUCTION_START),
    ],
};

const CELLS: Page = Page {
    file: "crates/bowline-bridge/CELLS.md",
    starts: &[
        (PagePart::Bridged, BRIDGED_INTRODUCTION_START),
        (PagePart::BridgedTasks, BRIDGED_TASKS_INTRODUCTION_START),
    ],
};

/// Renders one part.
pub(crate) fn text(part: PagePart, cells: &[Cell], known_failures: &KnownFailures) -> String {
    let (introduction, columns, checks) = layout(part);
    let titles: Vec<&str> = checks.iter().map(|check| title(part, check)).collect();
    let level = if part == PagePart::Sdks { "##" } else { "###" };
    let mut page = introduction.to_owned();
    for (side, title) in [
        (Side::Client, "Their clients, our server"),
        (Side::Server, "Our client, their servers"),
    ] {
        let has_side = match part {
            // A mock is always the server, and a trace begins at a client.
            PagePart::Mocked | PagePart::Traced => side == Side::Client,
            PagePart::Tool | PagePart::ToolReal => side == Side::Server,
            _ => true,
        };
        if !has_side {
            continue;
        }
        page.push_str(&format!("\n{level} {title}\n\n"));
        page.push_str(&format!("| {columns} | {} |\n", titles.join(" | ")));
        page.push_str(&format!("|{}\n", "---|".repeat(3 + checks.len())));
        for cell in cells.iter().filter(|cell| cell.side == side) {
            page.push_str(&row(part, cell, checks, known_failures));
        }
    }
    let skipped = skipped(part, cells);
    if known_failures.lines().is_empty() && skipped.is_empty() {
        return page;
    }
    page.push_str(&format!("\n{level} Known failures and skipped checks\n\n"));
    for line in known_failures.lines() {
        let (peer, side, why) = (&line.peer, &line.side, &line.why);
        let check = title(part, &line.check);
        let how = if line.is_helped {
            "passes with help"
        } else {
            "fails"
        };
        let over = line.transport.map(|only| format!(" over {}", only.name()));
        let over = over.unwrap_or_default();
        let era = line.era.map(|only| format!(" in the mode `{only}`"));
        let era = era.unwrap_or_default();
        page.push_str(&format!(
            "* {peer}, as a {side}{over}{era}, {how} `{check}`: {why}.\n"
        ));
    }
    for line in skipped {
        page.push_str(&line);
    }
    page
}

/// Returns the introduction of a part, and the columns of its tables.
fn layout(part: PagePart) -> (&'static str, &'static str, &'static [&'static str]) {
    match part {
        PagePart::Sdks => (INTRODUCTION, "peer | over | mode", CHECKS),
        PagePart::Tasks => (TASKS_INTRODUCTION, "peer | over | version", tasks::CHECKS),
        PagePart::Bridged => (
            BRIDGED_INTRODUCTION,
            "peer | over | modes",
            bridged::COLUMNS,
        ),
        PagePart::BridgedTasks => (
            BRIDGED_TASKS_INTRODUCTION,
            "peer | over | version",
            tasks::CHECKS,
        ),
        PagePart::Mocked => (MOCKED_INTRODUCTION, "peer | over | mode", CHECKS),
        PagePart::Tool => (TOOL_INTRODUCTION, "peer | over | mode", tool::CHECKS),
        PagePart::Traced => (TRACED_INTRODUCTION, "peer | over | mode", traced::CHECKS),
        PagePart::Real => (REAL_INTRODUCTION, "program | over | version", real::CHECKS),
        PagePart::BridgedReal => (
            BRIDGED_REAL_INTRODUCTION,
            "program | over | modes",
            real::CHECKS,
        ),
        PagePart::ToolReal => (
            TOOL_REAL_INTRODUCTION,
            "program | over | version",
            tool::REAL_CHECKS,
        ),
    }
}

/// Returns the heading of a check. `CELLS.md` uses the same words in all its tables.
fn title(part: PagePart, check: &str) -> &str {
    match (part, check) {
        (PagePart::Bridged, "ask") => "elicitation",
        (PagePart::Bridged, "sample") => "sampling",
        (PagePart::Bridged, "subscribe") => "resource update",
        (PagePart::Bridged, "lists") => "list change",
        (PagePart::Bridged, "log") => "log level",
        (PagePart::Bridged, "complete") => "completion",
        (PagePart::Bridged, "abandon") => "cancel",
        _ => check,
    }
}

/// Returns one line for the terminal.
pub(crate) fn summary(cells: &[Cell]) -> String {
    let failed = cells.iter().filter(|cell| !cell.is_as_expected()).count();
    let checks = cells.iter().flat_map(|cell| &cell.results);
    let passed = checks.filter(|result| **result == CheckResult::Ok).count();
    let all = cells.len();
    format!("{all} cells, {passed} checks passed, {failed} cells not as expected")
}

fn row(part: PagePart, cell: &Cell, columns: &[&str], known_failures: &KnownFailures) -> String {
    let (peer, transport) = (cell.peer, cell.transport.name());
    let results = columns.iter().filter_map(|column| {
        let mut checks = cell.checks();
        checks.find(|(check, _)| check == column)
    });
    let signs = results.map(|(check, result)| match result {
        CheckResult::Ok if known_failures.helps(cell.key(), check) => "✓*",
        CheckResult::Ok => "✓",
        CheckResult::Skipped(_) => "–",
        CheckResult::Unreached => "",
        CheckResult::KnownFailure => "no",
        CheckResult::Failed(_) | CheckResult::Unexpected => "**FAILED**",
    });
    let signs: Vec<&str> = signs.collect();
    let third = match part {
        PagePart::Sdks
        | PagePart::Bridged
        | PagePart::Mocked
        | PagePart::Tool
        | PagePart::Traced
        | PagePart::BridgedReal => &cell.mode,
        PagePart::Tasks | PagePart::BridgedTasks | PagePart::Real | PagePart::ToolReal => {
            &cell.version
        }
    };
    format!(
        "| {peer} | {transport} | {third} | {} |\n",
        signs.join(" | ")
    )
}

/// Returns the skipped checks, each once, with the missing feature of the protocol version or of the program.
fn skipped(part: PagePart, cells: &[Cell]) -> BTreeSet<String> {
    let each = cells.iter().flat_map(|cell| {
        let place = match part {
            PagePart::Sdks
            | PagePart::Bridged
            | PagePart::Mocked
            | PagePart::Tool
            | PagePart::Traced => {
                format!("at {}", cell.version)
            }
            PagePart::Tasks
            | PagePart::BridgedTasks
            | PagePart::Real
            | PagePart::BridgedReal
            | PagePart::ToolReal => {
                format!("for {} over {}", cell.peer, cell.transport.name())
            }
        };
        cell.checks()
            .filter_map(move |(check, result)| match result {
                CheckResult::Skipped(why) => {
                    Some(format!("* `{check}` is skipped {place}: {why}.\n"))
                }
                _ => None,
            })
    });
    each.collect()
}

const INTRODUCTION: &str = "\
# Results with real peers

Written by `cargo xtask interop`, which installs each peer from its registry and runs it on both sides, over every
transport and in every era that it supports. Every client runs the same checks:

| check | what it verifies |
|---|---|
| open, close | the version of the mode is negotiated; the client exits in time |
| list | the tools are listed |
| call | text with every kind of character is echoed unchanged, 100 kB included |
| errors | a tool error, a JSON-RPC error with its data, an invalid argument |
| unknown | an unknown tool, method and resource are refused |
| read | a resource and a prompt |
| progress | five progress notifications, complete and in order, before the result |
| many | 200 concurrent calls; each gets its own result |
| ask | elicitation, which the user accepts, declines and cancels |
| sample | two requests for a message of the client's model, each answered with a message of its own |
| subscribe | of two resources that change, only the subscribed one is notified |
| lists | a tool is added and removed: each time the client is notified, and the new list is correct |
| log | exactly the log messages at or above the client's level are received, for two levels |
| complete | two prefixes of an argument of a prompt, each with its completions |
| abandon | 20 calls are dropped while their handlers run; all 20 handlers stop |

The mode `auto` negotiates the version, `2026` uses 2026-07-28, `legacy` 2025-11-25 or the version after the colon;
`sse` is `legacy` over HTTP+SSE, which clients must select explicitly. The TypeScript server and rmcp do not support it.
`✓*` marks a check that passes because our program for that peer works around a failure of the peer; `–` a skipped one.

[`CELLS.md`](../crates/bowline-bridge/CELLS.md) has the results of the same peers and checks with a bridge between client and
server.
";

const TASKS_INTRODUCTION_START: &str = "\n## Tasks\n";

const TASKS_INTRODUCTION: &str = "
## Tasks

Written by `cargo xtask interop`, with implementations of the extension `io.modelcontextprotocol/tasks`. Our server
notifies subscribers of their tasks, and our client subscribes to them. Of the peers only tower-mcp does so, on both
sides; the others poll.

| check | what it verifies |
|---|---|
| open, close | 2026-07-28 is negotiated; the client exits in time |
| call | a call becomes a task and its result is the one of the tool; a tool without tasks answers directly |
| attach | a task is taken up by its id, and its result can be read again |
| ask | a task elicits a name, which the user accepts, declines and cancels |
| errors | a tool error completes the task, a JSON-RPC error fails it |
| cancel | a task is cancelled while its handler runs: its status is `cancelled`, and the handler stops. With our client also by the drop of a call |
| unknown | an unknown task is refused |
";

const BRIDGED_INTRODUCTION_START: &str = "\n## Peers of other SDKs\n";

const BRIDGED_INTRODUCTION: &str = "
## Peers of other SDKs

Written by `cargo xtask interop`: a client or a server of another SDK at one end, ours at the other, and `interop-bridge`
between them. `2026 → legacy` is a client of 2026-07-28 in front and a server of 2025-11-25 behind; `sse` is `legacy` over
HTTP+SSE. `over` is the transport of the peer. A client reaches our server over the same transport on both sides of the
bridge, or over HTTP behind HTTP+SSE; a server over stdio is behind a bridge that our client reaches over HTTP, and a server
over HTTP or HTTP+SSE behind one that it reaches over stdio. Over stdio the bridge has one connection for each client,
because the fixture counts in its process. The checks are those of
[`conformance/RESULTS.md`](../../conformance/RESULTS.md), with the names that they have in this file: `cancel` is `abandon`
there, `elicitation` is `ask`, `sampling` is `sample`, `list change` is `lists`, `resource update` is `subscribe`, `log
level` is `log`, `completion` is `complete`. `✓*` marks a check that passes because our program for that peer works around a
failure of the peer.
";

const BRIDGED_TASKS_INTRODUCTION_START: &str = "\n## Tasks of other implementations\n";

const BRIDGED_TASKS_INTRODUCTION: &str = "
## Tasks of other implementations

Written by `cargo xtask interop`: implementations of the extension `io.modelcontextprotocol/tasks` with `interop-bridge`
between client and server, over the transports of the section above. The extension belongs to 2026-07-28, which both sides
use. The checks are those of tasks in [`conformance/RESULTS.md`](../../conformance/RESULTS.md).
";

const MOCKED_INTRODUCTION_START: &str = "\n## Recorded and mocked\n";

const MOCKED_INTRODUCTION: &str = "
## Recorded and mocked

Written by `cargo xtask interop`: `bowline tap` records the Python client with the TypeScript server over stdio, once in
each era, while the client runs the checks of the first part. `bowline mock` serves each recording to the clients of both
SDKs, over stdio and HTTP, in each era, and they run the same checks. `2026, recorded in legacy` is a client of 2026-07-28
and a recording of 2025-11-25. What `abandon` verifies here is that the client goes on; no handler runs.
";

const TOOL_INTRODUCTION_START: &str = "\n## The tool\n";

const TOOL_INTRODUCTION: &str = "
## The tool

Written by `cargo xtask interop`: `interop-tool` runs the command `bowline` with the servers of the peers, as a user does,
and checks what it prints and its exit codes.

| check | what it verifies |
|---|---|
| bowline ls | a tool is listed with its schema and its signature |
| bowline call | a result, a tool error, a JSON-RPC error, an unknown tool, and a question, each with its exit code |
| bowline call and Ctrl-C | Ctrl-C while the handler runs: the command says how it cancelled the call. Over HTTP the handler is seen to stop |
| bowline watch | it subscribes, and ends at Ctrl-C. Over HTTP a change that another process causes is printed |
| bowline tap | a call that times out is recorded with its cancel: a frame on stdio, a closed stream or a posted frame over HTTP |
| bowline check | this recording violates no law of the specification |
| bowline doctor | no finding is an error; a call of `slow` is cancelled, and stops |
";

const TRACED_INTRODUCTION_START: &str = "\n## One trace\n";

const TRACED_INTRODUCTION: &str = "
## One trace

Written by `cargo xtask interop`: a client of the Python SDK calls a tool through `bowline bridge` of `interop-relay`, whose
handler calls a tool of a server of the Python SDK. All four send their spans to the OTLP receiver of oteltest.

| check | what it verifies |
|---|---|
| open, close | the version of the mode is negotiated; all programs exit in time |
| call | the result comes from the Python server |
| trace | the spans of the call have one trace id, that of the span in which the client calls |
| parents | each of the six spans is a child of the one before: Python client, bridge (twice), relay (twice), Python server |
| names | the spans are called `tools/call relay`, but for `MCP send tools/call relay` of the Python client |
";

const REAL_INTRODUCTION_START: &str = "\n## Published programs\n";

const REAL_INTRODUCTION: &str = "
## Published programs

Written by `cargo xtask interop --real`, which installs published programs: servers run unmodified, and clients are
driven by a script of a few lines. Each runs in its default mode, and so does ours; `version` is the negotiated one.

| check | what it verifies |
|---|---|
| open | a version is negotiated |
| list | all pages of tools are listed, and the tool that is called next is among them; FastMCP's server has two pages |
| call | one tool returns the expected text |
| abandon | of a server: a call is dropped, and the next five get their results. Of a client: a call is dropped, its handler on our server stops, and the next call gets its result |
| close | the program exits in time; a stdio server exits within 5 s after its input is closed, before it is killed |

The other checks do not run if `open` fails.
";

const BRIDGED_REAL_INTRODUCTION_START: &str = "\n## Published programs through the bridge\n";

const BRIDGED_REAL_INTRODUCTION: &str = "
## Published programs through the bridge

Written by `cargo xtask interop --real`: the checks of the part above, with `interop-bridge` between client and server, and
default settings. Servers run over stdio, as servers of 2025-11-25 for our client of 2026-07-28; `over` is the transport
between client and bridge. Clients use their default mode, and our server behind the bridge the era in the table.
";

const TOOL_REAL_INTRODUCTION_START: &str = "\n## Published servers and the tool\n";

const TOOL_REAL_INTRODUCTION: &str = "
## Published servers and the tool

Written by `cargo xtask interop --real`: `interop-tool` runs the command `bowline` with the reference servers, which do not
provide the fixture. Servers of both eras are used in each.

| check | what it verifies |
|---|---|
| bowline ls | the tool that is called next is listed, with its signature |
| bowline call | it returns the expected text |
| bowline watch | it watches what the server has, and ends at Ctrl-C |
| bowline tap, bowline check | the call is recorded with its result, and the recording violates no law of the specification |
| bowline doctor | no finding is an error |
";

#[cfg(test)]
mod tests {
    use super::super::cell::Transport;
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_cell_and_lists_known_failures() {
        let known_failures = KnownFailures::parse(
            "rmcp, client, open: refused\nrmcp, client, list, helped: too long",
        )
        .unwrap();
        let cells = [Cell {
            peer: "rmcp",
            side: Side::Client,
            transport: Transport::Http,
            mode: "legacy".to_owned(),
            version: "2025-11-25".to_owned(),
            checks: CHECKS,
            results: vec![
                CheckResult::KnownFailure,
                CheckResult::Ok,
                CheckResult::Skipped("too late".to_owned()),
            ],
        }];

        let page = text(PagePart::Sdks, &cells, &known_failures);
        let real = text(PagePart::Real, &cells, &known_failures);

        assert!(real.contains("| rmcp | http | 2025-11-25 | no | ✓* | – |\n"));
        assert!(real.contains("* `call` is skipped for rmcp over http: too late.\n"));
        assert!(page.contains("| rmcp | http | legacy | no | ✓* | – |\n"));
        assert!(page.contains("* rmcp, as a client, fails `open`: refused.\n"));
        assert!(page.contains("* rmcp, as a client, passes with help `list`: too long.\n"));
        assert!(page.contains("* `call` is skipped at 2025-11-25: too late.\n"));
    }

    #[test]
    fn the_parts_of_a_bridge_follow_the_cells_of_its_tests() {
        let bridged = text(PagePart::Bridged, &[], &KnownFailures::default());
        let tasks = text(PagePart::BridgedTasks, &[], &KnownFailures::default());

        let page = PagePart::Bridged.replace_in("# Cells\n", &bridged);
        let page = PagePart::BridgedTasks.replace_in(&page, &tasks);

        assert_eq!(page, format!("# Cells\n{bridged}{tasks}"));
        assert_eq!(PagePart::Bridged.replace_in(&page, &bridged), page);
        assert!(
            bridged.contains("| peer | over | modes | call | progress | cancel | elicitation |")
        );
    }

    #[test]
    fn each_command_writes_its_own_part() {
        let real = text(PagePart::Real, &[], &KnownFailures::default());

        let first = PagePart::Sdks.replace_in("", "SDKs\n");
        let both = PagePart::Real.replace_in(&first, &real);

        let tasks = text(PagePart::Tasks, &[], &KnownFailures::default());
        let all = PagePart::Tasks.replace_in(&both, &tasks);

        assert_eq!(all, format!("SDKs\n{tasks}{real}"));
        assert_eq!(PagePart::Tasks.replace_in(&all, &tasks), all);
        assert_eq!(
            PagePart::Sdks.replace_in(&all, "newer\n"),
            format!("newer\n{tasks}{real}")
        );
        assert_eq!(both, format!("SDKs\n{real}"));
        assert_eq!(PagePart::Real.replace_in(&both, &real), both);
        assert_eq!(
            PagePart::Sdks.replace_in(&both, "newer\n"),
            format!("newer\n{real}")
        );
    }
}
