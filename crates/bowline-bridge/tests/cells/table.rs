//! Generates `CELLS.md` from the results of a run.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use crate::checks::Check;
use crate::endpoint::Endpoint;
use crate::runner::Ran;

/// The results of a run, with and without a bridge.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) direct: Vec<Ran>,
    /// Every cell through the bridge.
    pub(crate) bridged: Vec<Ran>,
}

/// Compares the file with the results of this run, or writes it if `BLESS` is set.
pub(crate) fn check(results: &Results) -> Result<(), String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("CELLS.md");
    let generated = render(results);
    if fs::read_to_string(&path).is_ok_and(|found| found == generated) {
        Ok(())
    } else if std::env::var_os("BLESS").is_some() {
        fs::write(&path, generated).map_err(|error| format!("CELLS.md: {error}"))
    } else {
        let how = "BLESS=1 cargo test -p bowline-bridge --test cells";
        Err(format!(
            "CELLS.md differs from this run; `{how}` rewrites it"
        ))
    }
}

fn render(results: &Results) -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut sentences = Vec::new();
    if !results.bridged.is_empty() {
        text.push_str("\n## Through the bridge\n");
        for front in Endpoint::all() {
            let _ = write!(text, "\n### In front: {front}\n\n");
            let behind = Endpoint::all().map(|upstream| (front, upstream));
            table(
                &mut text,
                "behind",
                behind,
                &results.bridged,
                &mut sentences,
            );
        }
    }
    text.push_str(DIRECT);
    let equal = Endpoint::all().map(|endpoint| (endpoint, endpoint));
    table(
        &mut text,
        "at both ends",
        equal,
        &results.direct,
        &mut sentences,
    );
    text.push_str("\nForbidden by the specification:\n\n");
    for (at, sentence) in sentences.iter().enumerate() {
        let _ = writeln!(text, "{}. {sentence}", at + 1);
    }
    text
}

/// A table with a row for each pair of endpoints, and a column for each check.
fn table(
    text: &mut String,
    corner: &str,
    rows: impl Iterator<Item = (Endpoint, Endpoint)>,
    ran: &[Ran],
    sentences: &mut Vec<&'static str>,
) {
    let names = Check::ALL.map(Check::name).join(" | ");
    let rule = "---|".repeat(Check::ALL.len() + 1);
    let _ = writeln!(text, "| {corner} | {names} |\n|{rule}");
    for (front, upstream) in rows {
        let cells = Check::ALL.map(|check| {
            let mut ran = ran.iter().map(|one| (one.job, &one.result));
            let found = ran
                .find(|(job, _)| (job.front, job.upstream, job.check) == (front, upstream, check));
            match (found, check.forbidden(front, upstream)) {
                (Some((_, Err(_))), _) => "✗".to_owned(),
                (None, _) => String::new(),
                (Some((_, Ok(()))), Some(sentence)) => {
                    format!("n/a {}", number(sentences, sentence))
                }
                (Some((_, Ok(()))), None) => "✓".to_owned(),
            }
        });
        let _ = writeln!(text, "| {upstream} | {} |", cells.join(" | "));
    }
}

/// The number of a sentence, counted from 1.
fn number(sentences: &mut Vec<&'static str>, sentence: &'static str) -> usize {
    let at = sentences.iter().position(|known| *known == sentence);
    at.unwrap_or_else(|| {
        sentences.push(sentence);
        sentences.len() - 1
    }) + 1
}

const INTRODUCTION: &str = "\
# Cells

A cell is a client of one revision over one wire, in front, and a server of one revision over one wire, behind. This
file lists which checks passed in which cell. `BLESS=1 cargo test -p bowline-bridge --test cells` generates it; without
`BLESS` the command fails if the file differs from the run.

Both ends are raw sockets and pipes that share no code with `bowline`. A ✓ means that the check passed within ten
seconds, that the client was told of the capability, and that neither end saw the other one break a rule of its
revision: headers, envelope, handshake, ids in flight, answers without a request, second answers, progress after the
end, members of the other era.

| check | seen by the client | seen at the socket of the server |
|---|---|---|
| call | the result, with structured content where both revisions have it | one call, its arguments, foreign keys of \
`_meta`, the trace id, no capability that the client lacks |
| progress | each step of two calls before the next one is made, under its own token | two calls |
| cancel | no answer, but for the -32800 that ends a legacy POST; another call and the next one succeed | one cancel, by \
`notifications/cancelled` with the id verbatim and the reason, or over HTTP at 2026-07-28 by the close of the response |
| elicitation, sampling | one question, in the form of its revision | the capability; one call and one response, or at \
2026-07-28 a retry with the state that was issued; never a repeated call before that |
| list change | the announcement, and then the new list | something that watches the list |
| resource update | the announcement | the subscription, and its end |
| log level | exactly the lines at or above its level, for two levels | the level, before the call |
| completion | the values | the reference and the argument |
| task | working, completed, the result; a second task ends as cancelled | `tasks/cancel` with its own id, no \
`notifications/cancelled` |
";
const DIRECT: &str = "
## Without a bridge

The client connected with the server, to show that the two agree. Each check also fails in each of these cells if the
server has the fault that it looks for.

";
