//! All cells as a page that people read.

use std::collections::BTreeSet;

use super::cannot::Cannot;
use super::cell::{CHECKS, Cell, Side, Verdict};

/// The text of `conformance/RESULTS.md`.
pub(crate) fn page(cells: &[Cell], cannot: &Cannot) -> String {
    let mut page = INTRODUCTION.to_owned();
    for (side, title) in [
        (Side::Client, "Their clients, our server"),
        (Side::Server, "Our client, their servers"),
    ] {
        page.push_str(&format!("\n## {title}\n\n"));
        page.push_str(&format!(
            "| peer | over | mode | {} |\n",
            CHECKS.join(" | ")
        ));
        page.push_str(&format!("|{}\n", "---|".repeat(3 + CHECKS.len())));
        for cell in cells.iter().filter(|cell| cell.side == side) {
            page.push_str(&row(cell, cannot));
        }
    }
    page.push_str("\n## What is not there\n\n");
    for line in cannot.lines() {
        let (peer, side, check, why) = (&line.peer, &line.side, &line.check, &line.why);
        let how = if line.is_helped {
            "passes with help"
        } else {
            "fails"
        };
        page.push_str(&format!("* {peer}, as a {side}, {how} `{check}`: {why}.\n"));
    }
    for (check, version, why) in skipped(cells) {
        page.push_str(&format!("* `{check}` is left out at {version}: {why}.\n"));
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

fn row(cell: &Cell, cannot: &Cannot) -> String {
    let (peer, transport, mode) = (cell.peer, cell.transport.name(), &cell.mode);
    let verdicts = CHECKS.iter().zip(&cell.verdicts);
    let signs = verdicts.map(|(check, verdict)| match verdict {
        Verdict::Ok if cannot.helps(peer, cell.side, check) => "✓*",
        Verdict::Ok => "✓",
        Verdict::Skipped(_) => "–",
        Verdict::Cannot => "no",
        Verdict::Failed(_) | Verdict::Unexpected => "**FAILED**",
    });
    let signs: Vec<&str> = signs.collect();
    format!(
        "| {peer} | {transport} | {mode} | {} |\n",
        signs.join(" | ")
    )
}

/// What was left out, each once.
fn skipped(cells: &[Cell]) -> BTreeSet<(&str, &str, &str)> {
    let each = cells.iter().flat_map(|cell| {
        let verdicts = CHECKS.iter().zip(&cell.verdicts);
        verdicts.filter_map(|(check, verdict)| match verdict {
            Verdict::Skipped(why) => Some((*check, cell.version.as_str(), why.as_str())),
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

#[cfg(test)]
mod tests {
    use super::super::cell::Transport;
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_cell_and_says_what_is_not_there() {
        let cannot =
            Cannot::parse("rmcp, client, open: it is shut\nrmcp, client, list, helped: it is long")
                .unwrap();
        let cell = Cell {
            peer: "rmcp",
            side: Side::Client,
            transport: Transport::Http,
            mode: "legacy".to_owned(),
            version: "2025-11-25".to_owned(),
            verdicts: vec![
                Verdict::Cannot,
                Verdict::Ok,
                Verdict::Skipped("it is late".to_owned()),
            ],
        };

        let page = page(&[cell], &cannot);

        assert!(page.contains("| rmcp | http | legacy | no | ✓* | – |\n"));
        assert!(page.contains("* rmcp, as a client, fails `open`: it is shut.\n"));
        assert!(page.contains("* rmcp, as a client, passes with help `list`: it is long.\n"));
        assert!(page.contains("* `call` is left out at 2025-11-25: it is late.\n"));
    }
}
