//! All cells as a page that people read.

use std::collections::BTreeSet;

use super::cannot::Cannot;
use super::cell::{CHECKS, Cell, Side, Verdict};
use super::real;

/// One of the two parts of `conformance/RESULTS.md`, which are written by two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Sdks,
    Real,
}

impl Part {
    /// The command that writes it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Sdks => "cargo xtask interop",
            Self::Real => "cargo xtask interop --real",
        }
    }

    /// The page with this part replaced, and the other as it was.
    pub(crate) fn replace_in(self, page: &str, text: &str) -> String {
        let start_of_real = page.find(REAL_INTRODUCTION_START).unwrap_or(page.len());
        let (sdks, real) = page.split_at(start_of_real);
        match self {
            Self::Sdks => format!("{text}{real}"),
            Self::Real => format!("{sdks}{text}"),
        }
    }
}

/// The text of one part.
pub(crate) fn text(part: Part, cells: &[Cell], cannot: &Cannot) -> String {
    let (introduction, level, columns, checks) = match part {
        Part::Sdks => (INTRODUCTION, "##", "peer | over | mode", CHECKS),
        Part::Real => (
            REAL_INTRODUCTION,
            "###",
            "program | over | version",
            real::CHECKS,
        ),
    };
    let mut page = introduction.to_owned();
    for (side, title) in [
        (Side::Client, "Their clients, our server"),
        (Side::Server, "Our client, their servers"),
    ] {
        page.push_str(&format!("\n{level} {title}\n\n"));
        page.push_str(&format!("| {columns} | {} |\n", checks.join(" | ")));
        page.push_str(&format!("|{}\n", "---|".repeat(3 + checks.len())));
        for cell in cells.iter().filter(|cell| cell.side == side) {
            page.push_str(&row(part, cell, cannot));
        }
    }
    page.push_str(&format!("\n{level} What is not there\n\n"));
    for line in cannot.lines() {
        let (peer, side, check, why) = (&line.peer, &line.side, &line.check, &line.why);
        let how = if line.is_helped {
            "passes with help"
        } else {
            "fails"
        };
        let over = line.transport.map(|only| format!(" over {}", only.name()));
        let over = over.unwrap_or_default();
        page.push_str(&format!(
            "* {peer}, as a {side}{over}, {how} `{check}`: {why}.\n"
        ));
    }
    for line in skipped(part, cells) {
        page.push_str(&line);
    }
    page
}

/// One line for the terminal.
pub(crate) fn summary(cells: &[Cell]) -> String {
    let failed = cells.iter().filter(|cell| !cell.is_as_expected()).count();
    let checks = cells.iter().flat_map(|cell| &cell.verdicts);
    let passed = checks.filter(|verdict| **verdict == Verdict::Ok).count();
    let all = cells.len();
    format!("{all} pairs, {passed} checks passed, {failed} pairs not as expected")
}

fn row(part: Part, cell: &Cell, cannot: &Cannot) -> String {
    let (peer, transport) = (cell.peer, cell.transport.name());
    let signs = cell.checks().map(|(check, verdict)| match verdict {
        Verdict::Ok if cannot.helps(peer, cell.side, cell.transport, check) => "✓*",
        Verdict::Ok => "✓",
        Verdict::Skipped(_) => "–",
        Verdict::Unreached => "",
        Verdict::Cannot => "no",
        Verdict::Failed(_) | Verdict::Unexpected => "**FAILED**",
    });
    let signs: Vec<&str> = signs.collect();
    let third = match part {
        Part::Sdks => &cell.mode,
        Part::Real => &cell.version,
    };
    format!(
        "| {peer} | {transport} | {third} | {} |\n",
        signs.join(" | ")
    )
}

/// What was left out, each once: for lack of something in a version of the protocol, or in a program.
fn skipped(part: Part, cells: &[Cell]) -> BTreeSet<String> {
    let each = cells.iter().flat_map(|cell| {
        let place = match part {
            Part::Sdks => format!("at {}", cell.version),
            Part::Real => format!("of {} over {}", cell.peer, cell.transport.name()),
        };
        cell.checks()
            .filter_map(move |(check, verdict)| match verdict {
                Verdict::Skipped(why) => Some(format!("* `{check}` is left out {place}: {why}.\n")),
                _ => None,
            })
    });
    each.collect()
}

const INTRODUCTION: &str = "\
# Results with real peers

Written by `cargo xtask interop`, which installs each peer from its registry and runs it on both sides, over every
transport that it has, in every era that it speaks. The same checks are made with every client:

| check | what it sees |
|---|---|
| open, close | the version that the mode asks for is spoken; it ends in time |
| list | the tools are listed |
| call | text of every kind comes back as it was, 100 kB included |
| errors | a tool that fails, an error of the protocol with its data, a wrong argument |
| unknown | a tool, a method and a resource that do not exist are refused |
| read | a resource and a prompt |
| progress | five steps, in order and whole, before the result |
| many | 200 calls at once; each gets its own answer |
| ask | the server asks the user, who accepts, declines and cancels |
| subscribe | of two resources that change, only the one that was asked for is told of |
| abandon | 20 calls are let go of while they are at work; all 20 handlers at the other end stop |

The mode `auto` finds out what the other end speaks, `2026` speaks 2026-07-28, `legacy` 2025-11-25 or what follows it;
`sse` is `legacy` over HTTP+SSE, which clients have to be told of. The TypeScript server and rmcp do not have it.
`✓*` is a check that passes because our program for that peer does what the peer does not; `–` is left out.
";

const REAL_INTRODUCTION_START: &str = "\n## Programs as they come\n";

const REAL_INTRODUCTION: &str = "
## Programs as they come

Written by `cargo xtask interop --real`, which installs programs that have nothing of ours, or next to nothing: servers
are run as they are, and clients by a script of a few lines. Each is in its default mode, and so is ours; `version` is what
the two agree upon.

| check | what it sees |
|---|---|
| open | they agree upon a version |
| list | the tools are listed, all pages of them, and what is called next is among them; FastMCP's server has two pages |
| call | one tool answers with the text that it should |
| abandon | of a server: a call is dropped, and the next five are answered. Of a client: a call is dropped, its handler stops at our end, and the next one is answered |
| close | it ends in time; a server over stdio exits within 5 s because its input is closed, before it is killed |

Nothing else is checked where `open` fails.
";

#[cfg(test)]
mod tests {
    use super::super::cell::Transport;
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_cell_and_says_what_is_not_there() {
        let cannot =
            Cannot::parse("rmcp, client, open: it is shut\nrmcp, client, list, helped: it is long")
                .unwrap();
        let cells = [Cell {
            peer: "rmcp",
            side: Side::Client,
            transport: Transport::Http,
            mode: "legacy".to_owned(),
            version: "2025-11-25".to_owned(),
            checks: CHECKS,
            verdicts: vec![
                Verdict::Cannot,
                Verdict::Ok,
                Verdict::Skipped("it is late".to_owned()),
            ],
        }];

        let page = text(Part::Sdks, &cells, &cannot);
        let real = text(Part::Real, &cells, &cannot);

        assert!(real.contains("| rmcp | http | 2025-11-25 | no | ✓* | – |\n"));
        assert!(real.contains("* `call` is left out of rmcp over http: it is late.\n"));
        assert!(page.contains("| rmcp | http | legacy | no | ✓* | – |\n"));
        assert!(page.contains("* rmcp, as a client, fails `open`: it is shut.\n"));
        assert!(page.contains("* rmcp, as a client, passes with help `list`: it is long.\n"));
        assert!(page.contains("* `call` is left out at 2025-11-25: it is late.\n"));
    }

    #[test]
    fn each_command_writes_its_own_part() {
        let real = text(Part::Real, &[], &Cannot::default());

        let first = Part::Sdks.replace_in("", "SDKs\n");
        let both = Part::Real.replace_in(&first, &real);

        assert_eq!(both, format!("SDKs\n{real}"));
        assert_eq!(Part::Real.replace_in(&both, &real), both);
        assert_eq!(
            Part::Sdks.replace_in(&both, "newer\n"),
            format!("newer\n{real}")
        );
    }
}
