//! Both ends in one process: over a wire in memory, and with no wire at all.

use crate::legs::clients;
use crate::measure::Row;
use crate::options::Options;
use crate::program::{Setting, Subject};

pub(crate) fn both_ends(options: &Options) -> Vec<Row> {
    let wired = [Subject::Bowline, Subject::RmcpBest];
    vec![
        Row::cpu(
            "both ends, in process",
            None,
            &clients::run(
                options,
                &[Subject::Bowline],
                Setting::USUAL,
                &["--in-process"],
                1,
            ),
        ),
        Row::cpu(
            "both ends, wire in memory, 1 in flight",
            None,
            &clients::run(options, &wired, Setting::USUAL, &["--memory"], 1),
        ),
        Row::cpu(
            "both ends, wire in memory, 64 in flight",
            None,
            &clients::run(options, &wired, Setting::USUAL, &["--memory"], 64),
        ),
    ]
}
