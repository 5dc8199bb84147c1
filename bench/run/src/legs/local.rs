//! Client and server in one process: over an in-memory wire, and without a wire.

use crate::legs::clients;
use crate::measure::Row;
use crate::options::Options;
use crate::program::{ProcessSetting, Subject};

pub(crate) fn both_ends(options: &Options) -> Vec<Row> {
    let wired = [Subject::Bowline, Subject::RmcpBest];
    vec![
        Row::cpu(
            "both ends, in process",
            None,
            &clients::run(
                options,
                &[Subject::Bowline],
                ProcessSetting::USUAL,
                &["--in-process"],
                1,
            ),
        ),
        Row::cpu(
            "both ends, wire in memory, 1 in flight",
            None,
            &clients::run(options, &wired, ProcessSetting::USUAL, &["--memory"], 1),
        ),
        Row::cpu(
            "both ends, wire in memory, 64 in flight",
            None,
            &clients::run(options, &wired, ProcessSetting::USUAL, &["--memory"], 64),
        ),
    ]
}
